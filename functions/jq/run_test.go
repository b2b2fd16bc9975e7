package jq_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
)

// subtract spends its time in one built-in, quadratic in the length of the event's lists.
const subtract = `[.a - .b | length, 0][0]`

func lists(n int) *event.Event {
	a, b := make([]string, n), make([]string, n)
	for i := range n {
		a[i], b[i] = strconv.Itoa(i), strconv.Itoa(n+i)
	}
	return newEvent(fmt.Sprintf(`{"a": [%s], "b": [%s]}`, strings.Join(a, ","), strings.Join(b, ",")))
}

// TestABuiltInThatDoesNotEndIsLeftBehind promises that whoever evaluates an expression is free soon after
// its time limit, or the end of its own context, while gojq is still at it.
func TestABuiltInThatDoesNotEndIsLeftBehind(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  time.Duration // the caller's
		is   func(error) bool
	}{
		{
			name: "its time limit", end: time.Hour,
			is: func(err error) bool { return typeOf(err) == event.Expression && strings.Contains(err.Error(), "1s") },
		},
		{
			name: "the caller's end", end: 300 * time.Millisecond,
			is: func(err error) bool { return errors.Is(err, context.DeadlineExceeded) },
		},
	} {
		e := compile(t, subtract)
		ev := lists(5000)
		ctx, cancel := context.WithTimeout(context.Background(), tt.end)
		_, err := e.JSON(ctx, ev)
		cancel()
		if n := running("gojq.funcOpSub"); !tt.is(err) || n != 1 {
			t.Errorf("%s: got %v with %d left running", tt.name, err, n)
		}
		if n, err := e.JSON(context.Background(), lists(3)); err != nil || string(n) != "3" {
			t.Errorf("the next event: got %s, %v", n, err)
		}
		waitFor(t, "jq.(*evaluation).run", 0)
	}
}

// TestNoMoreThanFewEvaluationsAreLeftBehind promises that an expression which does not end on event after
// event does not take all processors and memory: it is refused until earlier ones have ended.
func TestNoMoreThanFewEvaluationsAreLeftBehind(t *testing.T) {
	e := compile(t, subtract)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := e.JSON(ctx, lists(4000)); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want the caller's end", err)
			}
		})
	}
	waitFor(t, "gojq.funcOpSub", 4)
	cancel()
	wg.Wait()
	_, err := e.JSON(context.Background(), lists(3))
	if typeOf(err) != event.Expression || !strings.Contains(err.Error(), "not evaluated") || !strings.Contains(err.Error(), ".a - .b") {
		t.Errorf("got %v, want a refusal that names the expression", err)
	}
	if n, err := compile(t, subtract).JSON(context.Background(), lists(3)); err != nil || string(n) != "3" {
		t.Errorf("another expression: got %s, %v", n, err)
	}
	waitFor(t, "jq.(*evaluation).run", 0)
	if n, err := e.JSON(context.Background(), lists(3)); err != nil || string(n) != "3" {
		t.Errorf("after they ended: got %s, %v", n, err)
	}
}

// running counts the goroutines that are in a function.
func running(function string) int {
	stack := make([]byte, 1<<20)
	n := 0
	for g := range strings.SplitSeq(string(stack[:runtime.Stack(stack, true)]), "\n\n") {
		if strings.Contains(g, function+"(") {
			n++
		}
	}
	return n
}

// waitFor waits until that many goroutines are in a function.
func waitFor(t *testing.T, function string, n int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); running(function) != n; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines in %s, want %d", running(function), function, n)
		}
	}
}

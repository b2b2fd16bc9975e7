package asynchttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/jq"
)

// narrow is the room of a call: what is over free is given after a wait.
type narrow struct {
	free int64
	wait time.Duration

	mu         sync.Mutex // guards all below
	held, most int64
	sum        int64 // of all that was ever given
}

func (r *narrow) Take(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held+n > r.free {
		return false
	}
	r.add(n)
	return true
}

func (r *narrow) Wait(ctx context.Context, n int64) error {
	select {
	case <-time.After(r.wait):
	case <-ctx.Done():
		return ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(n)
	return nil
}

func (r *narrow) add(n int64) {
	r.held += n
	r.sum += n
	r.most = max(r.most, r.held)
}

func (r *narrow) Give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= n
}

func (r *narrow) now() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// body is that of an answer: it ends with the request, and looks whether there is room for what it gives.
type body struct {
	t      *testing.T // nil: it does not look, since some may be thrown away
	ctx    context.Context
	room   *narrow
	left   io.Reader
	gave   int64
	broken error // at the end
}

func (b *body) Read(p []byte) (int, error) {
	if err := context.Cause(b.ctx); err != nil {
		return 0, err
	}
	n, err := b.left.Read(p)
	if b.gave += int64(n); b.t != nil && n > 0 && b.gave > b.room.now() {
		b.t.Errorf("%d bytes were read into room of %d", b.gave, b.room.now())
	}
	if err == io.EOF && b.broken != nil {
		err = b.broken
	}
	return n, err
}

func (b *body) Close() error { return nil }

// serving answers with texts, each of which may break off at its end, and says how long they are if known.
func serving(t *testing.T, room *narrow, known bool, texts []string, broken ...error) *http.Client {
	n := 0
	return cannedClient(func(r *http.Request) (*http.Response, error) {
		at := min(n, len(texts)-1)
		n++
		b := &body{t: t, ctx: r.Context(), room: room, left: strings.NewReader(texts[at])}
		if at < len(broken) {
			b.broken = broken[at]
		}
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: b, ContentLength: -1}
		if known {
			resp.ContentLength = int64(len(texts[at]))
		}
		return resp, nil
	})
}

func TestAnAnswerThatWaitsForRoomIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := &narrow{wait: time.Minute}
		answer := `"` + strings.Repeat("a", 100_000) + `"`
		f := build(t, serving(t, room, false, []string{answer}), "url: http://h/\ninto: .a\ntimeout: 2s\ntotal_timeout: 3s\n")
		got := drive(event.WithRoom(t.Context(), room), f, `{}`)
		if got.err != nil || got.attempts != 1 || got.value != `{"a":`+answer+`}` || got.took < 4*time.Minute {
			t.Errorf("after %v and %d attempts: %v, %d bytes", got.took, got.attempts, got.err, len(got.value))
		}
	})
}

func TestAConnectionThatIsLostWhileItsAnswerWaitsIsNoAttempt(t *testing.T) {
	long := `"` + strings.Repeat("a", 20_000) + `"`
	for _, c := range []struct {
		name, options string
		wait          time.Duration
		kind          event.Type
		holds         int
	}{
		{"a long wait", "", time.Minute, "", 1},
		{"too short a wait to be why", "", 20 * time.Millisecond, event.Connection, 0},
		{"a request that may have been carried out", "method: POST\nbody: .\n", time.Minute, event.Connection, 0},
		{"whatever rules say", "errors: [{on: [connection], do: drop}]\n", time.Minute, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				room := &narrow{free: 10_000, wait: c.wait}
				client := serving(t, room, false, []string{long, `"short"`}, io.ErrUnexpectedEOF)
				f := build(t, client, "url: http://h/\ninto: .a\ntimeout: 10s\ntotal_timeout: 15s\nretry: {attempts: 1}\n"+c.options)
				got := drive(event.WithRoom(t.Context(), room), f, `{}`)
				if got.kind() != c.kind || got.holds != c.holds || got.attempts != 1 || c.kind == "" && got.value != `{"a":"short"}` {
					t.Errorf("%d attempts, %d holds: %v, %s, want %q after %d holds", got.attempts, got.holds, got.err, got.value, c.kind, c.holds)
				}
			})
		})
	}
}

func TestAServerThatCutsEveryAnswerIsNotAskedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := &narrow{free: 10_000, wait: time.Minute}
		client := serving(t, room, false, []string{`"` + strings.Repeat("a", 20_000) + `"`}, io.ErrUnexpectedEOF)
		f := build(t, client, "url: http://h/\ninto: .a\nretry: {attempts: 2}\n")
		got := drive(event.WithRoom(t.Context(), room), f, `{}`)
		if got.kind() != event.Connection || got.holds != 10 || got.attempts != 2 {
			t.Errorf("%v after %d attempts and %d tries that were none, want %s after 2 and 10", got.err, got.attempts, got.holds, event.Connection)
		}
	})
}

func TestAConnectionThatIsLostWhileItsAnswerWaitsIsNoFailureOfTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := `"` + strings.Repeat("a", 20_000) + `"`
		room := &narrow{free: 10_000, wait: time.Minute}
		lost := io.ErrUnexpectedEOF
		client := serving(t, room, false, []string{long, long, long, `"short"`}, lost, lost, lost)
		f := build(t, client, "{url: http://h/, into: .a, breaker: {calls: 1}}")
		got := drive(event.WithRoom(t.Context(), room), f, `{}`)
		if got.err != nil || got.holds != 3 || got.attempts != 1 || got.took > 10*time.Minute+time.Second {
			t.Errorf("%v after %d holds, %d attempts and %v; want it well as soon as there was room, with no breaker open", got.err, got.holds, got.attempts, got.took)
		}
	})
}

// Answers that wait for room may wait for an event that has to call the same host first.
func TestACallFindsItsPlaceBesideAnswersThatWaitForRoom(t *testing.T) {
	for _, first := range []struct {
		name, options string
		calls         int
	}{{"adaptive", "adaptive: true", adaptiveFirst}, {"tries of a host whose breaker is open", "breaker: {calls: 1}, retry: {attempts: 0}", 4}} {
		t.Run(first.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				none := &narrow{wait: 2 * time.Minute}
				began := time.Now()
				client := cannedClient(func(*http.Request) (*http.Response, error) {
					if time.Since(began) < time.Second {
						return refuse(nil)
					}
					time.Sleep(10 * time.Millisecond)
					return reply(200, `"an answer"`)
				})
				f := build(t, client, "{url: http://h/, into: .a, "+first.options+"}")
				if first.calls < adaptiveFirst {
					_, _ = f.Process(t.Context(), newEvent(`{}`)) // opens it
				}
				time.Sleep(time.Second)
				var wg sync.WaitGroup
				for range first.calls {
					wg.Go(func() { drive(event.WithRoom(t.Context(), none), f, `{}`) })
				}
				time.Sleep(time.Minute)
				if got := drive(t.Context(), f, `{}`); got.err != nil || got.took > 20*time.Second {
					t.Errorf("a call beside %d answers that wait for room ended with %v after %v, want it well and soon", first.calls, got.err, got.took)
				}
				wg.Wait()
			})
		})
	}
}

const adaptiveFirst = 8 // calls at once to begin with

func TestAWaitForRoomEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := &narrow{wait: time.Hour}
		f := build(t, serving(t, room, true, []string{`"a"`}), "url: http://h/\ninto: .a\n")
		ctx, cancel := context.WithCancel(event.WithRoom(t.Context(), room))
		time.AfterFunc(time.Minute, cancel)
		if got := drive(ctx, f, `{}`); !errors.Is(got.err, context.Canceled) || got.took != time.Minute {
			t.Errorf("got %v after %v, want that it was cancelled after 1m", got.err, got.took)
		}
	})
}

// What an expression decodes takes more than the answer's text.
func TestRoomIsKeptForWhatIsMadeOfAnAnswer(t *testing.T) {
	answer := `{"id":1,"items":[` + strings.Repeat(`{"a":1},`, 20_000) + `{"a":2}]}`
	text, values := int64(len(answer)), jq.DecodedSize([]byte(answer))
	for _, c := range []struct {
		name, options string
		least, most   int64
	}{
		{"a path", "select: .id\ninto: .a\n", text, 3 * text},
		{"the whole answer", "into: .a\n", 2 * text, 4 * text},
		{"an expression", "select: '[.items[].a] | add'\ninto: .a\n", text + values, 3*text + values},
		{"one of into", "into: {.a: .id, .b: '.items | length'}\n", text + values, 3*text + values},
		{"a condition", "select: .id\ninto: .a\nerrors: [{when: '.items | length > 1e9', do: error}]\n", text + values, 3*text + values},
		{"text", "as: text\ninto: .a\n", 4 * text, 7 * text},
		{"base64", "as: base64\ninto: .a\n", 3 * text, 5 * text},
	} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, " known ", known), func(t *testing.T) {
				room := &narrow{free: 1 << 40}
				f := build(t, serving(t, room, known, []string{answer}), "url: http://h/\n"+c.options)
				if got := drive(event.WithRoom(t.Context(), room), f, `{}`); got.err != nil {
					t.Fatal(got.err)
				}
				if room.most < c.least || room.most > c.most {
					t.Errorf("%d bytes were reserved for an answer of %d and values of %d, want from %d to %d", room.most, text, values, c.least, c.most)
				}
			})
		}
	}
}

func TestAnswersOfAnyLengthAreReadWhole(t *testing.T) {
	for _, n := range []int{1, 2, 8191, 8192, 8193, 16_384, 1<<20 - 1, 1 << 20, 1<<20 + 1} {
		for _, known := range []bool{true, false} {
			for over := range 2 { // bytes beyond max_response
				text := strings.Repeat("7", n)
				room := &narrow{free: 1 << 40}
				f := build(t, serving(nil, room, known, []string{text}), fmt.Sprintf("url: http://h/\nselect: 'length'\ninto: .a\nas: text\nmax_response: %dB\n", max(1, n-over)))
				got := drive(event.WithRoom(t.Context(), room), f, `{}`)
				switch {
				case over == 1 && n > 1 && got.kind() != event.TooLarge:
					t.Errorf("%d bytes, one more than allowed, known %v: %v, %s", n, known, got.err, got.value)
				case over == 0 && got.value != fmt.Sprintf(`{"a":%d}`, n):
					t.Errorf("%d bytes, known %v: %v, %s", n, known, got.err, got.value)
				}
			}
		}
	}
}

// Each step to a larger piece leaves the smaller one as garbage.
func TestAnAnswerThatNamesItsLengthIsCopiedLittle(t *testing.T) {
	answer := `{"id":1,"text":"` + strings.Repeat("some words. ", 8<<20/12) + `"}`
	room := &narrow{free: 1 << 40}
	f := build(t, serving(t, room, true, []string{answer}), "url: http://h/\nselect: .id\ninto: .a\n")
	if got := drive(event.WithRoom(t.Context(), room), f, `{}`); got.err != nil {
		t.Fatal(got.err)
	}
	if most := int64(len(answer)) * 5 / 4; room.sum > most {
		t.Errorf("%d bytes were reserved one after the other for an answer of %d, want %d at most", room.sum, len(answer), most)
	}
}

// A server that names a length and sends little takes no room for it.
func TestALengthIsNotBelievedBeforeItHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := &narrow{free: 1 << 40}
		client := cannedClient(func(r *http.Request) (*http.Response, error) {
			b := &body{t: t, ctx: r.Context(), room: room, left: bytes.NewReader([]byte(`{"a":`)), broken: io.ErrUnexpectedEOF}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: b, ContentLength: 60 << 20}, nil
		})
		f := build(t, client, "url: http://h/\ninto: .a\nretry: {attempts: 2}\n")
		got := drive(event.WithRoom(t.Context(), room), f, `{}`)
		if got.kind() != event.Connection || room.most > 2<<20 {
			t.Errorf("%v, %d bytes were reserved", got.err, room.most)
		}
	})
}

package gateway_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/a0c75104/enricher/gateway"
)

// legal is every change of state that may be, as text.
const legal = `
INITIALIZING: CREATED FAILING CANCELLING SUSPENDED
CREATED: RUNNING FAILING CANCELLING FINISHED SUSPENDED
RUNNING: FAILING CANCELLING FINISHED RESTARTING SUSPENDED
FAILING: FAILED CANCELLING SUSPENDED
FAILED:
CANCELLING: FAILED CANCELED SUSPENDED
CANCELED:
FINISHED:
RESTARTING: RUNNING FAILING CANCELLING FINISHED SUSPENDED
SUSPENDED:
RECONCILING:
`

// ways leads to each state that a job may have.
var ways = map[gateway.State][]gateway.State{
	gateway.Initializing: {},
	gateway.Created:      {gateway.Created},
	gateway.Running:      {gateway.Created, gateway.Running},
	gateway.Restarting:   {gateway.Created, gateway.Running, gateway.Restarting},
	gateway.Failing:      {gateway.Failing},
	gateway.Failed:       {gateway.Failing, gateway.Failed},
	gateway.Cancelling:   {gateway.Cancelling},
	gateway.Canceled:     {gateway.Cancelling, gateway.Canceled},
	gateway.Finished:     {gateway.Created, gateway.Finished},
	gateway.Suspended:    {gateway.Suspended},
}

func TestOnlyLegalChangesOfStateAreMade(t *testing.T) {
	got := "\n"
	for _, from := range gateway.States() {
		got += string(from) + ":"
		for _, to := range gateway.States() {
			way, ok := ways[from]
			if !ok {
				continue // no job comes there
			}
			c := gateway.NewCourse()
			for _, s := range way {
				if err := c.To(s); err != nil {
					t.Fatal(err)
				}
			}
			before := c.History()
			err := c.To(to)
			if err == nil {
				got += " " + string(to)
				continue
			}
			if wrong := (*gateway.TransitionError)(nil); !errors.As(err, &wrong) || wrong.From != from || wrong.To != to {
				t.Errorf("%s to %s: got %v, want a TransitionError of both", from, to, err)
			}
			if after := c.History(); after.State != from || !after.Changed.Equal(before.Changed) {
				t.Errorf("a refused change to %s left the job %s", to, after.State)
			}
		}
		got += "\n"
	}
	if got != legal {
		t.Errorf("legal are:%swant:%s", got, legal)
	}
}

func TestNothingFollowsAFinalState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := gateway.NewCourse()
		final := gateway.State("")
		for range 50 {
			s := rapid.SampledFrom(gateway.States()).Draw(t, "to")
			if err := c.To(s); err != nil {
				continue
			}
			if final != "" {
				t.Fatalf("%s followed %s", s, final)
			}
			if s.Final() {
				final = s
			}
		}
		h := c.History()
		if h.Ended().IsZero() == h.State.Final() {
			t.Fatalf("%s ended at %v", h.State, h.Ended())
		}
	})
}

func TestACourseKnowsWhenEachStateWasEntered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, began := gateway.NewCourse(), time.Now()
		way := []gateway.State{gateway.Created, gateway.Running, gateway.Restarting, gateway.Running, gateway.Failing, gateway.Failed}
		for _, s := range way {
			time.Sleep(time.Second)
			if err := c.To(s); err != nil {
				t.Fatal(err)
			}
		}
		h := c.History()
		for s, after := range map[gateway.State]time.Duration{gateway.Initializing: 0, gateway.Created: 1, gateway.Running: 4, gateway.Restarting: 3, gateway.Failing: 5, gateway.Failed: 6} {
			if want := began.Add(after * time.Second); !h.Since[s].Equal(want) {
				t.Errorf("%s since %v, want %v", s, h.Since[s], want)
			}
		}
		if _, ok := h.Since[gateway.Canceled]; ok || len(h.Since) != 6 {
			t.Errorf("has times of states that it never had: %v", h.Since)
		}
		if !h.Began().Equal(began) || !h.Ended().Equal(began.Add(6*time.Second)) {
			t.Errorf("began %v and ended %v", h.Began(), h.Ended())
		}
	})
}

func TestTheLastSixteenFailuresAreKeptTheNewestFirst(t *testing.T) {
	c := gateway.NewCourse()
	for n := range 17 {
		if h := c.History(); h.Truncated || len(h.Exceptions) != n {
			t.Fatalf("after %d failures: %d kept, truncated %v", n, len(h.Exceptions), h.Truncated)
		}
		c.Add(gateway.Exception{Text: fmt.Sprint(n)})
	}
	h := c.History()
	if len(h.Exceptions) != 16 || !h.Truncated || h.Exceptions[0].Text != "16" || h.Exceptions[15].Text != "1" {
		t.Errorf("got %v, truncated %v; want 16 to 1", h.Exceptions, h.Truncated)
	}
	if h.Failure() != nil {
		t.Error("a job that has not failed has a failure")
	}
}

package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/a0c75104/enricher/gateway"
)

const store = 5 * time.Minute

// trigger begins what takes d, under an id or a new one.
func trigger(t *testing.T, o *gateway.Operations, id string, d time.Duration, err error) gateway.OperationKey {
	t.Helper()
	key := gateway.OperationKey{Kind: "k", Job: "j", ID: id}
	got, failed := o.Trigger(t.Context(), key, func(ctx context.Context) (any, error) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return "result of " + id, err
	})
	if failed != nil {
		t.Fatal(failed)
	}
	key.ID = got
	return key
}

// poll returns how far an operation is, in a word.
func poll(o *gateway.Operations, key gateway.OperationKey) string {
	p, err := o.Poll(key)
	switch {
	case errors.Is(err, gateway.ErrUnknownOperation):
		return "unknown"
	case err != nil:
		return err.Error()
	case !p.Done:
		return "running"
	case p.Err != nil:
		return "failed: " + p.Err.Error()
	}
	return fmt.Sprint(p.Result)
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestAResultIsKeptForItsTimeAfterTheOperationHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := gateway.NewOperations(store, 100)
		well := trigger(t, o, "", time.Hour, nil)
		ill := trigger(t, o, "", time.Hour, errors.New("no"))
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(well.ID) || well.ID == ill.ID {
			t.Errorf("ids %q and %q, want two of 32 hex digits", well.ID, ill.ID)
		}
		time.Sleep(time.Hour - 1)
		same(t, "while it runs, longer than results are kept", poll(o, well), "running")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		time.Sleep(store - 1)
		for range 2 {
			same(t, "a result, read again and again", poll(o, well), "result of ")
			same(t, "a failure", poll(o, ill), "failed: no")
		}
		time.Sleep(time.Nanosecond)
		same(t, "after its time", poll(o, well), "unknown")
		o.Close()
	})
}

func TestAnOperationIsKnownUnderItsOwnKeyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := gateway.NewOperations(store, 100)
		key := trigger(t, o, "", 0, nil)
		synctest.Wait()
		for _, other := range []gateway.OperationKey{{Kind: "other", Job: key.Job, ID: key.ID}, {Kind: key.Kind, Job: "other", ID: key.ID}, {Kind: key.Kind, Job: key.Job, ID: "other"}} {
			same(t, fmt.Sprint(other), poll(o, other), "unknown")
		}
		o.Close()
	})
}

func TestATriggerWithAKnownIDBeginsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := gateway.NewOperations(store, 100)
		begun := 0
		key := gateway.OperationKey{Kind: "k", ID: "mine"}
		again := func() {
			if id, err := o.Trigger(t.Context(), key, func(context.Context) (any, error) { begun++; time.Sleep(time.Minute); return begun, nil }); id != "mine" || err != nil {
				t.Errorf("got %q, %v", id, err)
			}
			synctest.Wait()
		}
		again()
		again()
		time.Sleep(2 * time.Minute)
		again()
		same(t, "result", poll(o, key), "1")
		time.Sleep(store)
		again()
		time.Sleep(time.Minute)
		synctest.Wait()
		same(t, "once the first was forgotten", poll(o, key), "2")
		o.Close()
	})
}

func TestWhatRunsIsNeverForgottenAndTheirNumberIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := gateway.NewOperations(store, 3)
		long := trigger(t, o, "", 24*time.Hour, nil)
		short := trigger(t, o, "", time.Second, nil)
		trigger(t, o, "", 24*time.Hour, nil)
		refused := func() bool {
			_, err := o.Trigger(t.Context(), gateway.OperationKey{}, func(context.Context) (any, error) { return 0, nil })
			return errors.Is(err, gateway.ErrTooManyOperations)
		}
		if !refused() {
			t.Error("a fourth was begun")
		}
		time.Sleep(time.Second + store - 1)
		if !refused() {
			t.Error("a result was forgotten before its time to make room")
		}
		same(t, "the first result", poll(o, short), "result of ")
		time.Sleep(time.Second)
		if refused() {
			t.Error("none was begun although there is room again")
		}
		same(t, "what runs", poll(o, long), "running")
		o.Close()
		same(t, "what was ended", poll(o, long), "failed: context canceled")
	})
}

func TestAnOperationOutlivesItsRequestAndAPanicIsItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := gateway.NewOperations(store, 3)
		ctx, cancel := context.WithCancel(t.Context())
		key := gateway.OperationKey{ID: "1"}
		_, _ = o.Trigger(ctx, key, func(ctx context.Context) (any, error) { time.Sleep(time.Second); return "done", ctx.Err() })
		cancel()
		time.Sleep(time.Minute)
		same(t, "after its request", poll(o, key), "done")
		key.ID = "2"
		_, _ = o.Trigger(t.Context(), key, func(context.Context) (any, error) { panic("oh") })
		synctest.Wait()
		same(t, "a panic", poll(o, key), "failed: the operation panicked: oh")
		o.Close()
	})
}

func TestTheEndWaitsUntilResultsWereFetched(t *testing.T) {
	for _, tc := range []struct {
		name    string
		fetched time.Duration // 0: never
		bound   time.Duration
		took    time.Duration
		settled bool
	}{
		{"fetched after a while", 90 * time.Second, time.Hour, 90 * time.Second, true},
		{"fetched while it ran, and again later", time.Second, time.Hour, time.Minute + store, true},
		{"never fetched: until it is forgotten", 0, time.Hour, time.Minute + store, true},
		{"never fetched: until the bound", 0, 2 * time.Minute, 2 * time.Minute, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := gateway.NewOperations(store, 100)
				old := trigger(t, o, "", 0, nil)
				synctest.Wait()
				poll(o, old)
				key := trigger(t, o, "", time.Minute, nil)
				if tc.fetched > 0 {
					time.AfterFunc(tc.fetched, func() { poll(o, key) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), tc.bound)
				defer cancel()
				began := time.Now()
				if got := o.Settle(ctx); got != tc.settled || time.Since(began) != tc.took {
					t.Errorf("settled %v after %v, want %v after %v", got, time.Since(began), tc.settled, tc.took)
				}
				_, err := o.Trigger(ctx, gateway.OperationKey{ID: "new"}, nil)
				if !errors.Is(err, gateway.ErrClosing) {
					t.Errorf("a trigger at the end: %v, want %v", err, gateway.ErrClosing)
				}
				if id, err := o.Trigger(ctx, key, nil); tc.took < time.Minute+store && (err != nil || id != key.ID) {
					t.Errorf("a known id at the end: %q, %v; want it as before", id, err)
				}
				o.Close()
			})
		})
	}
}

// In any order of triggers, time and polls, what runs is known, and a result as long as it is kept.
func TestNoOperationIsLostBeforeItsTime(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		type kept struct {
			key gateway.OperationKey
			end time.Time
		}
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 40).Draw(r, "steps")
		long := rapid.SliceOfN(rapid.IntRange(0, 600), 40, 40).Draw(r, "seconds")
		synctest.Test(t, func(t *testing.T) {
			o := gateway.NewOperations(store, 1000)
			var all []kept
			for i, s := range steps {
				d := time.Duration(long[i])*time.Second + time.Millisecond
				if s < 4 {
					all = append(all, kept{trigger(t, o, "", d, nil), time.Now().Add(d)})
				} else {
					time.Sleep(d)
				}
				synctest.Wait()
				for _, k := range all {
					want := "running"
					if now := time.Now(); !now.Before(k.end.Add(store)) {
						want = "unknown"
					} else if !now.Before(k.end) {
						want = "result of "
					}
					if got := poll(o, k.key); got != want {
						t.Errorf("step %d: got %q, want %q", i, got, want)
					}
				}
			}
			o.Close()
		})
	})
}

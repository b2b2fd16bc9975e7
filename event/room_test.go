package event_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
)

// slowRoom has each reservation wait for some time.
type slowRoom struct {
	wait time.Duration
	held int64
}

func (r *slowRoom) Take(n int64) bool {
	if r.wait > 0 {
		return false
	}
	r.held += n
	return true
}

func (r *slowRoom) Wait(ctx context.Context, n int64) error {
	select {
	case <-time.After(r.wait):
		r.held += n
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *slowRoom) Give(n int64) { r.held -= n }

func TestTimeStandsStillWhileACallWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := &slowRoom{wait: time.Minute}
		ctx := event.WithRoom(t.Context(), room)
		outer, cancel := event.WithTimeout(ctx, 10*time.Second, nil)
		defer cancel()
		why := errors.New("took too long")
		inner, cancelInner := event.WithTimeout(outer, 5*time.Second, why)
		defer cancelInner()
		time.Sleep(3 * time.Second)
		if err := event.Reserve(inner, 100); err != nil || room.held != 100 {
			t.Fatalf("Reserve: %v, held %d", err, room.held)
		}
		if got := event.Waited(inner); got != time.Minute {
			t.Errorf("waited %v, want 1m", got)
		}
		if at, ok := inner.Deadline(); !ok || time.Until(at) != 2*time.Second {
			t.Errorf("the deadline is in %v, want 2s: that of the inner limit", time.Until(at))
		}
		derived, cancelDerived := context.WithCancel(inner)
		defer cancelDerived()
		time.Sleep(2*time.Second - 1)
		synctest.Wait()
		if inner.Err() != nil {
			t.Fatalf("ended before its time: %v", inner.Err())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !errors.Is(inner.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(inner), why) || !errors.Is(context.Cause(derived), why) {
			t.Errorf("inner limit: %v because of %v, derived because of %v", inner.Err(), context.Cause(inner), context.Cause(derived))
		}
		if outer.Err() != nil {
			t.Errorf("the outer limit ended with the inner: %v", outer.Err())
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !errors.Is(outer.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(outer), context.DeadlineExceeded) {
			t.Errorf("outer limit: %v because of %v", outer.Err(), context.Cause(outer))
		}
	})
}

func TestACallThatIsCancelledWaitsForNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := &slowRoom{wait: time.Hour}
		parent, cancel := context.WithCancel(event.WithRoom(t.Context(), room))
		ctx, end := event.WithTimeout(parent, time.Minute, nil)
		defer end()
		time.AfterFunc(2*time.Hour/3, cancel)
		began := time.Now()
		if err := event.Reserve(ctx, 1); !errors.Is(err, context.Canceled) || time.Since(began) != 2*time.Hour/3 {
			t.Errorf("Reserve: %v after %v, want that it was cancelled after 40m", err, time.Since(began))
		}
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("the context: %v, want that it was cancelled", ctx.Err())
		}
	})
}

func TestWithoutAStreamRoomIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := event.WithTimeout(t.Context(), time.Second, nil)
		defer cancel()
		if err := event.Reserve(ctx, 1<<40); err != nil {
			t.Errorf("Reserve: %v", err)
		}
		event.Release(ctx, 1<<40)
		if event.Waited(ctx) != 0 {
			t.Error("it waited")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("after its time: %v", ctx.Err())
		}
	})
}

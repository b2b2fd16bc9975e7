package gateway_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/gateway"
	"github.com/a0c75104/enricher/streammanager"
)

// events is a source of a few events, which then waits, or says what its test wants.
type events struct {
	n    int
	then func(ctx context.Context) error
	a    streammanager.Assignments
	next int64
}

func (s *events) Open(_ context.Context, a streammanager.Assignments) error {
	s.a = a
	a.Assigned(map[streammanager.TopicPartition]streammanager.Position{{Topic: "in"}: {}})
	return nil
}

func (s *events) Poll(ctx context.Context, _ int) (streammanager.Polled, error) {
	if s.next < int64(s.n) {
		s.next++
		return streammanager.Polled{Records: []streammanager.Record{{Topic: "in", Offset: s.next - 1, Value: []byte("{}")}}}, nil
	}
	return streammanager.Polled{}, s.then(ctx)
}

func (s *events) Close(context.Context) {}

func waits(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// breaks is a source that fails some time after it was first asked.
func breaks(after time.Duration) *events {
	at := time.Time{}
	return &events{then: func(ctx context.Context) error {
		if at.IsZero() {
			at = time.Now().Add(after)
		}
		select {
		case <-time.After(time.Until(at)):
			return errTest
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

// nowhere is a sink that takes all.
type nowhere struct{}

func (nowhere) Open(context.Context) error                                           { return nil }
func (nowhere) Produce(_ context.Context, _ *streammanager.Record, done func(error)) { done(nil) }
func (nowhere) Close(context.Context) error                                          { return nil }

// local is a job over real streams; each takes its next source.
func local(t *testing.T, restart streammanager.Restart, call time.Duration, sources ...*events) *gateway.Local {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	made := 0
	runs, err := streammanager.NewSupervisor(streammanager.SupervisorConfig{Name: "j", Logger: log, Restart: restart}, func() (streammanager.Made, error) {
		src := sources[min(made, len(sources)-1)]
		made++
		slow := func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
			select {
			case <-time.After(call):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return []*event.Event{ev}, nil
		}
		s, err := streammanager.New(streammanager.Config{Name: "j", Logger: log, Workers: 2}).From(src).To(nowhere{}).
			Process(streammanager.Step{Func: event.FuncOf(slow)}).Build()
		return streammanager.Made{Stream: s}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return gateway.NewLocal(gateway.LocalConfig{Name: "j", Logger: log, Process: func() gateway.Process { return process("w") }}, runs)
}

// running starts a job; what Run returns comes to the channel.
func running(ctx context.Context, j *gateway.Local) <-chan error {
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	synctest.Wait()
	return done
}

func state(t *testing.T, j *gateway.Local, want gateway.State) gateway.Picture {
	t.Helper()
	synctest.Wait()
	p, err := j.Look(t.Context())
	if err != nil || p.State != want {
		t.Errorf("the job is %s (%v), want %s", p.State, err, want)
	}
	return p
}

func TestAJobEndsAsItIsAskedTo(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(t *testing.T, j *gateway.Local, leave func())
		want gateway.State
		took time.Duration
		left int64
	}{
		{"cancelled", func(t *testing.T, j *gateway.Local, _ func()) {
			for range 2 { // again is no error
				if err := j.Cancel(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}, gateway.Canceled, 0, 5},
		{"stopped with a drain", func(t *testing.T, j *gateway.Local, _ func()) {
			if got, err := j.Stop(t.Context(), gateway.Stop{Drain: true}); err != nil || got.Unfinished != 0 {
				t.Errorf("stop: %+v, %v", got, err)
			}
		}, gateway.Finished, 12 * time.Second, 0},
		{"suspended", func(t *testing.T, j *gateway.Local, _ func()) {
			if got, err := j.Stop(t.Context(), gateway.Stop{}); err != nil || got.Unfinished != 3 {
				t.Errorf("stop: %+v, %v; want 3 that were not called", got, err)
			}
		}, gateway.Finished, 4 * time.Second, 3},
		{"cancelled while it is stopped", func(t *testing.T, j *gateway.Local, _ func()) {
			time.AfterFunc(time.Second, func() { _ = j.Cancel(context.Background()) })
			if _, err := j.Stop(t.Context(), gateway.Stop{Drain: true}); err == nil || !strings.Contains(err.Error(), "CANCELED") {
				t.Errorf("stop: %v, want that it was cancelled", err)
			}
		}, gateway.Canceled, time.Second, 5},
		{"its worker leaves", func(_ *testing.T, _ *gateway.Local, leave func()) { leave() }, gateway.Suspended, 12 * time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := local(t, streammanager.Restart{}, 4*time.Second, &events{n: 5, then: waits})
				state(t, j, gateway.Initializing)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				done := running(ctx, j)
				state(t, j, gateway.Running)
				began := time.Now()
				tc.end(t, j, leave)
				if err := <-done; err != nil {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(began); took != tc.took {
					t.Errorf("it took %v, want %v", took, tc.took)
				}
				if p := state(t, j, tc.want); p.Workers[0].Status.Unfinished != tc.left {
					t.Errorf("%d unfinished, want %d", p.Workers[0].Status.Unfinished, tc.left)
				}
				var ended *gateway.EndedError
				if _, err := j.Stop(t.Context(), gateway.Stop{}); !errors.As(err, &ended) || ended.State != tc.want {
					t.Errorf("a stop after its end: %v", err)
				}
				if err := j.Rescale(t.Context(), 2); !errors.As(err, &ended) {
					t.Errorf("a rescale after its end: %v", err)
				}
				if err := j.Cancel(t.Context()); errors.As(err, &ended) == (tc.want == gateway.Canceled) {
					t.Errorf("a cancel after its end: %v", err)
				}
			})
		})
	}
}

func TestAJobThatFailsIsRestartedAndThenFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := local(t, streammanager.Restart{Attempts: 1, Initial: time.Minute, Max: time.Minute, ResetAfter: 24 * time.Hour}, 0, breaks(10*time.Second), breaks(time.Hour))
		done := running(t.Context(), j)
		state(t, j, gateway.Running)
		time.Sleep(10 * time.Second)
		if p := state(t, j, gateway.Restarting); len(p.Exceptions) != 1 || p.Restarts != 1 || !strings.Contains(p.Exceptions[0].Text, "test failure") ||
			p.Exceptions[0].Labels["reason"] != "source" || p.Exceptions[0].Worker != "w" || p.Failure() != nil {
			t.Errorf("while it waits: %+v", p.Exceptions)
		}
		time.Sleep(time.Minute)
		state(t, j, gateway.Running)
		if err := <-done; err == nil {
			t.Error("Run returned no error")
		}
		if p := state(t, j, gateway.Failed); p.Failure() == nil || !strings.Contains(p.Failure().Text, "restart.attempts is 1") || len(p.Exceptions) != 2 {
			t.Errorf("at the end: %+v", p.Exceptions)
		}
	})
}

func TestAJobThatWaitsForItsRestartIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := local(t, streammanager.Restart{Initial: time.Hour, Max: time.Hour}, 0, &events{then: func(context.Context) error { return errTest }})
		done := running(t.Context(), j)
		state(t, j, gateway.Restarting)
		if err := j.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		state(t, j, gateway.Canceled)
	})
}

func TestAJobWithABoundedSourceFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := local(t, streammanager.Restart{}, time.Second, &events{n: 3, then: func(context.Context) error { return io.EOF }})
		if err := j.Run(t.Context()); err != nil {
			t.Error(err)
		}
		state(t, j, gateway.Finished)
	})
}

func TestARescaledJobTellsItsWorkersAndKeepsThemOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := local(t, streammanager.Restart{}, time.Hour, breaks(10*time.Second), &events{n: 9, then: waits})
		done := running(t.Context(), j)
		for _, n := range []int{0, -1, streammanager.MostWorkers + 1} {
			if err := j.Rescale(t.Context(), n); err == nil {
				t.Errorf("%d workers were taken", n)
			}
		}
		if err := j.Rescale(t.Context(), 5); err != nil {
			t.Error(err)
		}
		if p, _ := j.Look(t.Context()); p.Workers[0].Status.Workers != 5 {
			t.Errorf("at once it has %d workers, want 5", p.Workers[0].Status.Workers)
		}
		time.Sleep(time.Minute)
		if p := state(t, j, gateway.Running); p.Workers[0].Status.Busy != 5 {
			t.Errorf("the stream after it has %d at work, want 5", p.Workers[0].Status.Busy)
		}
		_ = j.Cancel(t.Context())
		<-done
	})
}

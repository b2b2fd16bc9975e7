package streammanager_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/streammanager"
)

// partSink is a sink with something to tell of itself.
type partSink struct {
	memSink
	fails          error // of Open
	ill            error
	stalls         int64
	opened, closed int
}

func (s *partSink) Open(context.Context) error  { s.opened++; return s.fails }
func (s *partSink) Close(context.Context) error { s.closed++; return nil }
func (s *partSink) Health() error               { return s.ill }
func (s *partSink) Stalled() map[streammanager.Stall]int64 {
	return map[streammanager.Stall]int64{streammanager.StallTopic: s.stalls}
}

func TestEachSinkIsOpenedAskedAndClosedOnce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		errors func(out, own *partSink) *partSink
		stalls float64
	}{
		{name: "three sinks", errors: func(_, own *partSink) *partSink { return own }, stalls: 7},
		{name: "one that takes the error events too", errors: func(out, _ *partSink) *partSink { return out }, stalls: 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, own, through := &partSink{stalls: 1}, &partSink{stalls: 2}, &partSink{stalls: 4}
				errs := tt.errors(out, own)
				reg := prometheus.NewRegistry()
				h := newHarness(t, false, streammanager.Config{Metrics: reg}, func(b *streammanager.Builder) {
					b.Process(try(pass)).To(out).ErrorsTo(errs, nil).PartitionBy(byField).Repartition(between, through)
				})
				stop := h.serve(t)
				time.Sleep(time.Minute)
				for _, s := range []*partSink{out, errs, through} {
					s.ill = errTest
					if err := h.stream.Status().Ready; !errors.Is(err, errTest) {
						t.Errorf("ready %v, want what a sink says", err)
					}
					s.ill = nil
				}
				if n := stalled(t, reg, streammanager.StallTopic); n != tt.stalls {
					t.Errorf("%v stalls are counted, want %v", n, tt.stalls)
				}
				stop()
				for _, s := range []*partSink{out, errs, through} {
					if s.opened != 1 || s.closed != 1 {
						t.Errorf("opened %d times and closed %d times, want once each", s.opened, s.closed)
					}
				}
			})
		})
	}
}

func TestASinkThatDoesNotOpenClosesThoseThatDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, errs, through := &partSink{}, &partSink{}, &partSink{fails: errTest}
		h := newHarness(t, false, streammanager.Config{}, func(b *streammanager.Builder) {
			b.Process(try(pass)).To(out).ErrorsTo(errs, nil).PartitionBy(byField).Repartition(between, through)
		})
		err := h.stream.Run(t.Context())
		if !errors.Is(err, errTest) || !strings.Contains(err.Error(), "opening the sink of the repartition topic") {
			t.Errorf("ended with %v", err)
		}
		if out.closed != 1 || errs.closed != 1 || through.closed != 0 {
			t.Errorf("closed %d, %d and %d times, want the first two once", out.closed, errs.closed, through.closed)
		}
	})
}

package streammanager_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/streammanager"
)

func TestAStopTakesNoLongerThoughACallDoesNotReturn(t *testing.T) {
	for _, timeout := range []time.Duration{30 * time.Second, 5 * time.Second, 2 * time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, false, streammanager.Config{ShutdownTimeout: timeout}, func(b *streammanager.Builder) {
					b.Process(hanging(time.Hour, 30*time.Minute, 0))
				})
				h.src.add(0, "a", "fine")
				h.src.add(0, "b", "hangs")
				stop := h.serve(t)
				within(t, "the stop", timeout, stop)
				equal(t, "outputs", h.sink.values(), []string{"fine"})
				equal(t, "errors", h.errs.values(), nil)
				h.offsets(t, 1)
				time.Sleep(time.Hour) // the call returns
			})
		})
	}
}

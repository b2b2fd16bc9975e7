package streammanager_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

func TestAStopDoesNotWaitForAFilterThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := newHarness(t, false, streammanager.Config{ShutdownTimeout: 5 * time.Second}, func(b *streammanager.Builder) {
			b.Filter(func(_ context.Context, ev *event.Event) (bool, error) {
				if string(ev.Value()) == "hangs" {
					<-release
				}
				return true, nil
			}).Process(try(pass))
		})
		h.src.add(0, "a", "fine")
		stop := h.start(t)
		time.Sleep(time.Second)
		h.src.add(0, "a", "hangs")
		time.Sleep(time.Second)
		from := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(from); took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
		if got := h.src.offset(0); got != 1 {
			t.Errorf("committed %d, want 1", got)
		}
		close(release)
	})
}

func TestAnErrorEventWithALargeKeyOrHeadersIsCutToFit(t *testing.T) {
	big := strings.Repeat("b", 1000)
	for _, tt := range []struct {
		name, key, value string
		headers          []event.Header
		want             string
	}{
		{name: "the headers go where the value is not enough", key: "k", value: big, headers: []event.Header{{Key: "h", Value: []byte(big)}}, want: "k"},
		{name: "the key is shortened at last", key: big, value: big, headers: []event.Header{{Key: "h", Value: []byte(big)}}, want: strings.Repeat("b", 500)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, true, streammanager.Config{}, func(b *streammanager.Builder) {
					b.Process(try(func(context.Context, *event.Event) ([]*event.Event, error) { return nil, errTest }))
				})
				h.errs.check = func(r *streammanager.Record) error {
					size := len(r.Key) + len(r.Value)
					for _, hd := range r.Headers {
						size += len(hd.Key) + len(hd.Value)
					}
					if size > 900 {
						return event.Rejectf(event.TooLarge, "%d bytes", size)
					}
					return nil
				}
				h.src.add(0, tt.key, tt.value)
				h.src.logs[tp{"in", 0}][0].Headers = tt.headers
				if err := h.stream.Run(context.Background()); err != nil {
					t.Fatal(err)
				}
				if got := string(h.errs.got[0].Key); got != tt.want || len(h.errs.got[0].Value) != 0 {
					t.Errorf("key of %d bytes and value of %d, want %d and 0", len(got), len(h.errs.got[0].Value), len(tt.want))
				}
				if got := h.errs.header(0, "enricher.error.truncated"); got != "1000" {
					t.Errorf("truncated: got %q, want 1000", got)
				}
				if got := h.errs.header(0, "enricher.error.message"); !strings.Contains(got, "did not fit") {
					t.Errorf("message: %q does not say what was left out", got)
				}
				if got := h.src.offset(0); got != 1 {
					t.Errorf("committed %d, want 1", got)
				}
			})
		})
	}
}

// deaf is a source whose group does not answer any more.
type deaf struct{ *memSource }

func (deaf) Commit(ctx context.Context, _ map[tp]streammanager.Position) error {
	<-ctx.Done()
	return ctx.Err()
}

func (deaf) Close(ctx context.Context) { <-ctx.Done() }

func TestAStopTakesNoLongerThoughTheGroupDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newMemSource(false)
		h := newHarness(t, false, streammanager.Config{ShutdownTimeout: 10 * time.Second}, func(b *streammanager.Builder) {
			b.From(deaf{src}).Process(try(pass))
		})
		src.add(0, "a", "0")
		stop := h.start(t)
		time.Sleep(100 * time.Millisecond)
		from := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(from); took > 10*time.Second {
			t.Errorf("the stop took %v, want at most the shutdown timeout of 10s", took)
		}
	})
}

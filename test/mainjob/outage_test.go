//go:build unix

package mainjob_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
)

// apiOutage is a time in which the API does not work.
type apiOutage struct {
	mode   job.Mode
	length time.Duration
	rate   int // events a second
}

func apiOutages() []apiOutage {
	if *full {
		return []apiOutage{
			{job.Refuses, time.Minute, 2000},
			{job.Hangs, time.Minute, 2000},
			{job.Unavailable, time.Minute, 2000},
			{job.Refuses, 10 * time.Minute, 2000},
		}
	}
	return []apiOutage{{job.Refuses, 8 * time.Second, 300}}
}

const (
	steadyFor  = 10 * time.Second
	backWithin = 8 * time.Second // breaker.open and three seconds
	lookFor    = 5 * time.Second // at the rate after that
	aheadMost  = 30_000          // events that the input is ahead: more than the limits let in
)

// With default settings an outage of the API costs time and nothing else: the API sees next to no calls, no event
// becomes an error event, and the work goes on at its full rate soon after.
func TestAnOutageOfTheAPIMakesNoStormAndLosesNothing(t *testing.T) {
	for _, o := range apiOutages() {
		t.Run(fmt.Sprintf("%s for %v", o.mode, o.length), func(t *testing.T) {
			b := startBroker(t, topics())
			a := job.StartAPI(t, 20*time.Millisecond)
			f := &feed{t: t, b: b, w: startWorker(t, b, a), came: a.Calls, rate: o.rate, maker: job.NewMaker(t, 1, 0), keys: 10_000}
			f.flow(3 * time.Second) // the group settles
			from := f.now()
			f.flow(steadyFor)
			before := f.now()
			must(t, a.Become(o.mode))
			f.flow(o.length)
			during := f.now()
			must(t, a.Become(job.Answers))
			f.flow(backWithin)
			back := f.now()
			f.flow(lookFor)
			after := f.now()
			must(t, b.client.Flush(t.Context()))
			waitFor(t, "everything is committed", func() bool { return idle(t, b, group, inputTopic) })

			steady := rateOf(from, before, func(m moment) float64 { return m.calls })
			full := rateOf(from, before, func(m moment) float64 { return m.emitted })
			most := f.mostCalls(before.at.Add(2*time.Second), during.at)
			resumed := rateOf(back, after, func(m moment) float64 { return m.emitted })
			if full < 0.4*float64(o.rate) { // what the machine has left for it
				t.Errorf("%.0f events left in a second before the outage, of %d: this case is not what it says", full, o.rate)
			}
			if most > 0.1*steady {
				t.Errorf("up to %.0f calls a second after the first two seconds of the outage, want at most a tenth of the %.0f before", most, steady)
			}
			if resumed < 0.95*full {
				t.Errorf("%.0f events left in a second from %v after the return on, want the full rate of %.0f", resumed, backWithin, full)
			}
			d, _ := checkDelivered(t, b, f.loaded)
			if d.Repeated > 0 {
				t.Errorf("%d outputs are repeated", d.Repeated)
			}
			t.Logf("API %s for %v: events=%d %v error_events=%d calls_per_second=%.0f then at most %.0f; events_per_second=%.0f, from %v after the return on %.0f",
				o.mode, o.length, len(f.loaded), d, count(t, b, errorTopic), steady, most, full, backWithin, resumed)
		})
	}
}

// feed writes events at a rate, and looks at what becomes of them.
type feed struct {
	t     *testing.T
	b     *broker
	w     *job.Worker
	came  func() int // calls that the API saw
	rate  int
	keys  int
	maker *job.Maker

	loaded job.Loaded
	seen   []moment
}

// moment is what there was of calls and outputs.
type moment struct {
	at             time.Time
	calls, emitted float64
}

// now looks. Calls that came to nobody are known by the worker alone, those that hang by the API.
func (f *feed) now() moment {
	f.t.Helper()
	m := f.w.Metrics()
	attempts := 0.0
	for _, n := range m.ByLabel("enricher_http_request_duration_seconds", "code") {
		attempts += n
	}
	s := moment{at: time.Now(), calls: math.Max(attempts, float64(f.came())), emitted: m.Value("enricher_events_total", "outcome=emitted")}
	f.seen = append(f.seen, s)
	return s
}

// flow writes for so long, and looks four times a second.
func (f *feed) flow(d time.Duration) {
	f.t.Helper()
	began, written, look := time.Now(), 0, time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for now := began; now.Sub(began) < d; now = <-tick.C {
		if now.After(look) {
			f.now()
			look = now.Add(time.Second / 4)
		}
		due := int(now.Sub(began).Seconds() * float64(f.rate))
		for ; written < due; written++ {
			if len(f.loaded)-int(f.seen[len(f.seen)-1].emitted) < aheadMost {
				f.write()
			}
		}
	}
}

func (f *feed) write() {
	id, o, r := f.maker.Make(inputTopic, f.maker.AnyOf(f.keys), 0)
	f.loaded = append(f.loaded, o)
	f.b.client.Produce(f.t.Context(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			f.t.Errorf("writing event %d: %v", id, err)
		}
	})
}

// mostCalls returns the most calls a second that were made within a second or a little more.
func (f *feed) mostCalls(from, to time.Time) float64 {
	f.t.Helper()
	most := -1.0
	for i, first := range f.seen {
		for _, last := range f.seen[i:] {
			if !first.at.Before(from) && !last.at.After(to) && last.at.Sub(first.at) >= time.Second {
				most = max(most, rateOf(first, last, func(m moment) float64 { return m.calls }))
				break
			}
		}
	}
	if most < 0 {
		f.t.Error("nobody looked during the outage")
	}
	return most
}

func rateOf(from, to moment, of func(moment) float64) float64 {
	return (of(to) - of(from)) / to.at.Sub(from.at).Seconds()
}

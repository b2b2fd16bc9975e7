package asynchttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

// users are options of a function that asks for several at once.
const users = `
url: http://api/users?token=hush&ids=\(map(.id) | join(","))
into: .user
select: .name
bulk:
  max: 50
  max_url: 8kB
  items: .users
  match: {event: .id, item: .id}
`

// buildBulk makes a function whose requests go through client.
func buildBulk(t *testing.T, client *http.Client, text string, metrics prometheus.Registerer) event.BatchFunc {
	t.Helper()
	o := options(t, text)
	env := functions.Env{Name: "content", Workers: 8, HTTP: client}
	if metrics != nil {
		env.HTTP = asynchttp.NewClient(asynchttp.ClientConfig{Workers: 8, Transport: client.Transport, Metrics: metrics}).HTTP()
	}
	built, err := asynchttp.Spec().Build(env, &o)
	if err != nil {
		t.Fatalf("building: %v", err)
	}
	if built.Batch == nil || built.Func != nil {
		t.Fatalf("got %+v, want a function for batches", built)
	}
	return built.Batch
}

// driveBatch does what the stream does with one batch: events that ask for another try go together, when the latest of
// their waits ends.
func driveBatch(t *testing.T, f event.BatchFunc, values ...string) []ended {
	t.Helper()
	began := time.Now()
	out := make([]ended, len(values))
	tries := make([]*event.Attempts, len(values))
	waiting := make([]int, len(values))
	for i := range values {
		tries[i], waiting[i] = event.NewAttempts(began), i
	}
	for len(waiting) > 0 {
		evs := make([]*event.Event, len(waiting))
		for n, i := range waiting {
			evs[n] = event.WithAttempts(newEvent(values[i]), tries[i])
		}
		results := f.ProcessBatch(t.Context(), evs)
		if len(results) != len(evs) {
			t.Fatalf("%d results for %d events", len(results), len(evs))
		}
		var again []int
		var latest time.Duration
		for n, i := range waiting {
			var retry *event.RetryError
			var hold *event.HoldError
			switch r := results[n]; {
			case errors.As(r.Err, &retry):
				out[i].retries++
				tries[i].Add(1)
				again, latest = append(again, i), max(latest, retry.After)
			case errors.As(r.Err, &hold):
				out[i].holds++
				again, latest = append(again, i), max(latest, time.Until(hold.Until))
			default:
				out[i].err, out[i].attempts, out[i].status, out[i].took = r.Err, tries[i].Number(), tries[i].LastStatus(), time.Since(began)
				out[i].dropped = r.Err == nil && len(r.Events) == 0
				if len(r.Events) == 1 {
					out[i].value = string(r.Events[0].Value())
				}
			}
		}
		if waiting = again; len(again) > 0 {
			pause(t.Context(), latest)
		}
	}
	return out
}

// directory answers for users by their ids. It knows those whose id has a name, and notes what it was asked.
type directory struct {
	mu    sync.Mutex // guards all below
	names map[string]string
	fails func(n int, ids []string) (*http.Response, error) // nil, nil: it answers
	asked [][]string
	urls  []string
}

func (d *directory) client() *http.Client { return cannedClient(d.answer) }

func (d *directory) answer(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := strings.Split(r.URL.Query().Get("ids"), ",")
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		ids = strings.Split(strings.Trim(string(b), "[]"), ",")
	}
	d.asked, d.urls = append(d.asked, ids), append(d.urls, r.URL.String())
	if d.fails != nil {
		if resp, err := d.fails(len(d.asked), ids); resp != nil || err != nil {
			return resp, err
		}
	}
	var items []string
	for _, id := range ids {
		if name, known := d.names[id]; known {
			items = append(items, fmt.Sprintf(`{"id":%s,"name":%s}`, id, name))
		}
	}
	slices.Reverse(items) // their order says nothing
	return reply(200, `{"users":[`+strings.Join(items, ",")+`]}`)
}

func (d *directory) requests() [][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

// named are n users, from id 1 on, and the events that ask for them.
func named(n int) (map[string]string, []string) {
	names, events := map[string]string{}, []string{}
	for i := 1; i <= n; i++ {
		id := fmt.Sprint(i)
		names[id] = `"u` + id + `"`
		events = append(events, `{"id":`+id+`}`)
	}
	return names, events
}

func wantAsked(t *testing.T, d *directory, want ...string) {
	t.Helper()
	var got []string
	for _, ids := range d.requests() {
		got = append(got, strings.Join(ids, ","))
	}
	if !slices.Equal(got, want) {
		t.Errorf("asked for %q, want %q", got, want)
	}
}

// histogram sums all series of a metric.
func histogram(t *testing.T, g prometheus.Gatherer, name string) (count uint64, sum float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			count += m.GetHistogram().GetSampleCount()
			sum += m.GetHistogram().GetSampleSum()
		}
	}
	return count, sum
}

// refuses answers with a status where one of ids is asked for.
func refuses(status int, ids ...string) func(int, []string) (*http.Response, error) {
	return func(_ int, asked []string) (*http.Response, error) {
		if slices.ContainsFunc(asked, func(id string) bool { return slices.Contains(ids, id) }) {
			return reply(status, "poison")
		}
		return nil, nil
	}
}

func counter(t *testing.T, g prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// containing are the requests for an id.
func containing(d *directory, id string) (out [][]string) {
	for _, ids := range d.requests() {
		if slices.Contains(ids, id) {
			out = append(out, ids)
		}
	}
	return out
}

// timed fails the test where a call takes longer than it may.
type timed struct {
	f    event.BatchFunc
	t    *testing.T
	most time.Duration
}

func (f timed) ProcessBatch(ctx context.Context, evs []*event.Event) []event.Result {
	began := time.Now()
	out := f.f.ProcessBatch(ctx, evs)
	if took := time.Since(began); took > f.most {
		f.t.Errorf("a call took %v, longer than its timeout of %v", took, f.most)
	}
	return out
}

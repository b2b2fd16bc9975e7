package pipeline_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/pipeline"
)

// opened is a function that notes when it is made and closed.
type opened struct {
	event.Func
	notes *[]string
}

func (o opened) Close(context.Context) error {
	*o.notes = append(*o.notes, "closed")
	return nil
}

func TestAFunctionThatWasMadeForTheCheckIsClosedBeforeTheOneOfTheRunIsMade(t *testing.T) {
	var notes []string
	spec := functions.New("probe", "notes what becomes of it", func(env functions.Env, _ struct{}) (event.Func, error) {
		notes = append(notes, "made")
		if err := env.Metrics.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "probe", Help: "A gauge."})); err != nil {
			return nil, err
		}
		return opened{notes: &notes, Func: event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
			return []*event.Event{ev}, nil
		})}, nil
	})
	path := write(t, "p.yaml", "name: p\nsource: {file: {path: in}}\nprocess:\n  - probe: {}\nsink: {file: {path: out}}\n")
	p, err := pipeline.Load(path, pipeline.Options{Specs: []functions.Spec{spec}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"made", "closed"}; !slices.Equal(notes, want) {
		t.Fatalf("after the load: %q, want %q", notes, want)
	}
	_, done, err := p.Build(pipeline.Deps{Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := done(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"made", "closed", "made", "closed"}; !slices.Equal(notes, want) {
		t.Errorf("after the run: %q, want %q", notes, want)
	}
}

func TestACheckReachesNoNetwork(t *testing.T) {
	var reached error
	spec := functions.New("probe", "calls while it is made", func(env functions.Env, _ struct{}) (event.Func, error) {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://127.0.0.1:1/", nil)
		if err != nil {
			return nil, err
		}
		resp, err := env.HTTP.Do(req)
		if reached = err; err == nil {
			_ = resp.Body.Close()
		}
		return event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) { return []*event.Event{ev}, nil }), nil
	})
	path := write(t, "p.yaml", "name: p\nsource: {file: {path: in}}\nprocess:\n  - probe: {}\nsink: {file: {path: out}}\n")
	if _, err := pipeline.Load(path, pipeline.Options{Specs: []functions.Spec{spec}}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(reached, net.ErrClosed) {
		t.Errorf("a request while the file was checked came to %v, want it refused without a socket", reached)
	}
}

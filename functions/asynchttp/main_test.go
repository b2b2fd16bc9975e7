package asynchttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// defaults writes the default tags of t as YAML.
func defaults(t reflect.Type, indent string) string {
	var b strings.Builder
	for i := range t.NumField() {
		f := t.Field(i)
		if def, ok := f.Tag.Lookup("default"); ok {
			fmt.Fprintf(&b, "%s%s: %s\n", indent, f.Tag.Get("yaml"), def)
		} else if f.Type == reflect.TypeFor[asynchttp.RetryOptions]() || f.Type == reflect.TypeFor[asynchttp.BreakerOptions]() {
			fmt.Fprintf(&b, "%s%s:\n%s", indent, f.Tag.Get("yaml"), defaults(f.Type, indent+"  "))
		}
	}
	return b.String()
}

// options reads options as a pipeline file would, over the defaults.
func options(t *testing.T, text string) asynchttp.Options {
	t.Helper()
	var o asynchttp.Options
	for _, y := range []string{defaults(reflect.TypeFor[asynchttp.Options](), ""), text} {
		if err := yaml.Unmarshal([]byte(y), &o); err != nil {
			t.Fatalf("reading options %q: %v", y, err)
		}
	}
	if o.Cache != nil && o.Cache.MaxBytes == 0 {
		o.Cache.MaxBytes = 16 << 20
	}
	return o
}

// build makes a function whose requests go through client.
func build(t *testing.T, client *http.Client, text string) *asynchttp.Func {
	t.Helper()
	f, err := asynchttp.New(functions.Env{Name: "content", Workers: 8, HTTP: client}, options(t, text))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return f
}

func newEvent(value string) *event.Event {
	return event.New(event.Position{Topic: "in"}, nil, []byte(value), nil, time.Unix(0, 0))
}

// canned answers requests in place of the network.
type canned func(r *http.Request) (*http.Response, error)

func (f canned) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func cannedClient(f canned) *http.Client {
	return asynchttp.NewClient(asynchttp.ClientConfig{Workers: 8, Transport: f}).HTTP()
}

// reply makes an answer; headers are name, value, name, value…
func reply(status int, body string, headers ...string) (*http.Response, error) {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body))}, nil
}

// ended is how an event came out of a function, after all its waits.
type ended struct {
	value    string
	dropped  bool
	err      error
	attempts int
	status   int
	retries  int
	holds    int
	took     time.Duration
}

func (e ended) kind() event.Type {
	var r *event.RejectError
	if errors.As(e.err, &r) {
		return r.Type
	}
	return ""
}

// drive does what the stream does: it waits where the function asks for it, and counts.
func drive(ctx context.Context, f event.Func, value string) ended {
	return driveWith(ctx, f, make(chan struct{}, 1), newEvent(value))
}

// driveWith takes one of the workers for each call. What an event waits for may ring its bell.
func driveWith(ctx context.Context, f event.Func, workers chan struct{}, ev *event.Event) ended {
	tries := event.NewAttempts(time.Now())
	began := time.Now()
	var out ended
	for {
		workers <- struct{}{}
		got, err := f.Process(ctx, event.WithAttempts(ev.Share(), tries))
		<-workers
		var retry *event.RetryError
		var hold *event.HoldError
		switch {
		case errors.As(err, &retry):
			out.retries++
			tries.Add(1)
			pause(ctx, retry.After)
		case errors.As(err, &hold):
			out.holds++
			if rest(ctx, hold); hold.Bell != nil && ctx.Err() != nil { // the stream would not call it any more
				out.err = ctx.Err()
				return out
			}
		default:
			out.err, out.attempts, out.took = err, tries.Number(), time.Since(began)
			out.status = tries.LastStatus()
			out.dropped = err == nil && len(got) == 0
			if len(got) == 1 {
				out.value = string(got[0].Value())
			}
			return out
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// rest waits as a hold says.
func rest(ctx context.Context, hold *event.HoldError) {
	if hold.Bell == nil {
		pause(ctx, time.Until(hold.Until))
		return
	}
	ctx, wake := context.WithCancel(ctx)
	hold.Bell.Listen(wake)
	pause(ctx, time.Until(hold.Until))
	wake()
}

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

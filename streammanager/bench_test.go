package streammanager_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"testing"

	"github.com/a0c75104/enricher/streammanager"
)

// ordered is a sink that checks the order of each key, whose events carry their numbers.
type ordered struct {
	last map[string]int
	n    int
	bad  string
}

func (s *ordered) Open(context.Context) error  { return nil }
func (s *ordered) Close(context.Context) error { return nil }

// Produce is called by one goroutine.
func (s *ordered) Produce(_ context.Context, r *streammanager.Record, done func(error)) {
	n, err := strconv.Atoi(string(r.Value))
	if last, ok := s.last[string(r.Key)]; s.bad == "" && (err != nil || ok && n <= last) {
		s.bad = fmt.Sprintf("%d of key %q left after %d", n, r.Key, last)
	}
	s.last[string(r.Key)] = n
	s.n++
	done(nil)
}

// made is a bounded source that makes its records up as they are polled, of 100 keys.
type made struct {
	n, end int
	keys   [][]byte
}

func (s *made) Open(_ context.Context, a streammanager.Assignments) error {
	for i := range 100 {
		s.keys = append(s.keys, fmt.Append(nil, "key", i))
	}
	a.Assigned(map[tp]streammanager.Position{{Topic: "in"}: {}})
	return nil
}

func (s *made) Poll(_ context.Context, limit int) (streammanager.Polled, error) {
	if s.n == s.end {
		return streammanager.Polled{}, io.EOF
	}
	var got streammanager.Polled
	for range min(limit, 500, s.end-s.n) {
		got.Records = append(got.Records, streammanager.Record{
			Topic: "in", Offset: int64(s.n), Key: s.keys[s.n%len(s.keys)], Value: strconv.AppendInt(nil, int64(s.n), 10),
		})
		s.n++
	}
	return got, nil
}

func (s *made) Close(context.Context) {}

// carry runs n events through a function that does nothing, and checks that all leave in order.
func carry(t testing.TB, n, workers int, inline bool) {
	t.Helper()
	step, sink := try(pass), &ordered{last: map[string]int{}}
	step.Inline = inline
	s, err := streammanager.New(streammanager.Config{Name: "test", Workers: workers, Logger: slog.New(slog.DiscardHandler)}).From(&made{end: n}).Process(step).To(sink).Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if sink.bad != "" || sink.n != n {
		t.Fatalf("%d of %d events left; out of order: %q", sink.n, n, sink.bad)
	}
}

// The workers of a pool take and give back many calls at once; none may be lost, or the stream stands still.
func TestManyShortCallsAreAllMade(t *testing.T) {
	for _, workers := range []int{5, 100} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) { carry(t, 20_000, workers, false) })
	}
}

// What an event costs beside its function, with its order checked: a chain without calls, and calls on few
// and on very many workers.
func BenchmarkAnEventOnItsWay(b *testing.B) {
	for _, bm := range []struct {
		name    string
		workers int
		inline  bool
	}{{"inline", 4, true}, {"workers=4", 4, false}, {"workers=1000", 1000, false}} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			carry(b, b.N, bm.workers, bm.inline)
		})
	}
}

//go:build unix

package kafka_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// One event takes for ever, and those behind it are finished when the pipeline stops. It has them passed over when it starts
// again: each event leaves once, and what was passed over is counted as nothing else.
func TestEventsThatWereFinishedBeforeAStopAreCountedAsPassedOver(t *testing.T) {
	c, p := shared.one(t), newPlaces()
	p.topics(t, c, 2)
	var hangs atomic.Bool
	hangs.Store(true)
	free := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs.Load() && strings.HasSuffix(r.URL.Path, "/10") {
			select {
			case <-free:
			case <-r.Context().Done():
			}
		}
		_, _ = fmt.Fprint(w, strings.TrimPrefix(r.URL.Path, "/"))
	}))
	defer api.Close()
	defer close(free)
	put(t, c, p.in, 0, numbers(0, 60)...)
	put(t, c, p.in, 1, numbers(100, 20)...)
	set := []string{
		fmt.Sprintf(`process=[{http: {url: '%s/\(.)', allow_hosts: [127.0.0.1], into: .}}]`, api.URL),
		"order=none", "shutdown_timeout=1s",
	}
	p.books.differs = differences{early: true, ahead: 49, unfinished: exactly(1), unordered: true}
	in := p.run(t, c, set...)
	in.emitted(79)
	must(t, in.stop())
	if at := offset(t, c, p.group, p.in, 0); at != 10 {
		t.Errorf("it has committed up to %d, want the event 10 that is not finished", at)
	}
	hangs.Store(false)
	p.books.differs = differences{over: exactly(49), unordered: true}
	in = p.run(t, c, set...)
	in.emitted(1)
	must(t, in.stop())
}

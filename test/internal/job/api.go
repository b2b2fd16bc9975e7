//go:build unix

package job

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// API is the slow thing that workers call: GET /page/KEY?id=ID.
type API struct {
	// URL is where it serves.
	URL string

	server *httptest.Server
	door   *door
	ended  chan struct{} // lets hanging calls go at the end of the test

	mu       sync.Mutex // guards what follows
	mode     Mode
	delay    time.Duration
	calls    map[int]int
	came     int          // calls of all events
	answered map[int]int  // by key
	distinct map[int]bool // events that were answered
	total    int          // answers
	hanging  map[int]bool
	refusal  func(id int) int
	inside   int // calls in progress
	most     int // of them at once, at most
	last     time.Time
	stall    time.Duration
}

// StartAPI serves on loopback until the test ends. Each call takes delay.
func StartAPI(t testing.TB, delay time.Duration) *API {
	t.Helper()
	a := &API{
		delay: delay, ended: make(chan struct{}),
		calls: map[int]int{}, answered: map[int]int{}, distinct: map[int]bool{}, hanging: map[int]bool{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page/{key}", a.serve)
	a.server = httptest.NewUnstartedServer(mux)
	var err error
	a.door, err = openDoor()
	Must(t, err)
	_ = a.server.Listener.Close()
	a.server.Listener = a.door
	a.server.Start()
	t.Cleanup(func() {
		close(a.ended)
		a.server.CloseClientConnections() // of workers that were killed
		a.server.Close()
	})
	a.URL = a.server.URL
	return a
}

// Mode is how an API meets its calls.
type Mode string

// What becomes of calls.
const (
	Answers     Mode = ""            // as they should be
	Refuses     Mode = "refuses"     // nobody listens
	Hangs       Mode = "hangs"       // they hang until the caller gives up
	Unavailable Mode = "unavailable" // the status is 503
)

// Become changes what becomes of calls, from the next one on. Those that hang go on doing so.
func (a *API) Become(m Mode) error {
	a.mu.Lock()
	was := a.mode
	a.mode = m
	a.mu.Unlock()
	switch {
	case m == Refuses:
		a.door.shut()
		a.server.CloseClientConnections()
	case was == Refuses:
		return a.door.open()
	}
	return nil
}

// Take changes how long calls take, from the next one on.
func (a *API) Take(delay time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delay = delay
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.URL.Query().Get("id"))
	key, errKey := strconv.Atoi(r.PathValue("key"))
	if err != nil || errKey != nil {
		http.Error(w, "id and key are numbers", http.StatusBadRequest)
		return
	}
	mode, delay := a.enter(id, key)
	defer a.leave()
	switch mode {
	case Refuses:
		panic(http.ErrAbortHandler) // it came in before the door was shut
	case Unavailable:
		http.Error(w, "come again later", http.StatusServiceUnavailable)
		return
	}
	answer := time.NewTimer(delay)
	defer answer.Stop()
	due := answer.C
	if mode == Hangs {
		due = nil
	}
	select {
	case <-due:
	case <-a.ended:
		return
	case <-r.Context().Done():
		return
	}
	a.count(id, key)
	if status := a.refused(id); status != 0 {
		http.Error(w, "not this one", status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":%d,"text":"content of event %d"}`, id, id)
}

// Refuse has the calls for an event answered with the status that of says; 0: as they should be. They count as answered.
func (a *API) Refuse(of func(id int) (status int)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusal = of
}

func (a *API) refused(id int) (status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refusal == nil {
		return 0
	}
	return a.refusal(id)
}

// Calls returns how many calls came in.
func (a *API) Calls() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.came
}

func (a *API) enter(id, key int) (Mode, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls[id]++
	a.came++
	a.inside++
	a.most = max(a.most, a.inside)
	if a.mode == Answers && a.hanging[key] {
		return Hangs, 0
	}
	return a.mode, a.delay
}

func (a *API) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside--
}

func (a *API) count(id, key int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.distinct[id] = true
	a.answered[key]++
	a.total++
	if now := time.Now(); a.last.IsZero() {
		a.last = now
	} else {
		a.stall = max(a.stall, now.Sub(a.last))
		a.last = now
	}
}

// Hang makes calls of key hang until the caller gives up.
func (a *API) Hang(key int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hanging[key] = true
}

// Release lets calls of key be answered again.
func (a *API) Release(key int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.hanging, key)
}

// Answers returns how many calls were answered.
func (a *API) Answers() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}

// LongestStall returns the longest time between an answer and the one before it.
func (a *API) LongestStall() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stall
}

// AnswersByKey returns how many calls of each key were answered.
func (a *API) AnswersByKey() map[int]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.answered)
}

// CallsByID returns how often each event was asked for.
func (a *API) CallsByID() map[int]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.calls)
}

// Distinct returns how many events were answered at least once.
func (a *API) Distinct() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.distinct)
}

// RepeatedCalls returns how many calls were made for events that had been asked for before.
func (a *API) RepeatedCalls() int {
	n := 0
	for _, calls := range a.CallsByID() {
		n += calls - 1
	}
	return n
}

// MostAtOnce returns the largest number of calls that were in progress together.
func (a *API) MostAtOnce() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.most
}

// Rate measures for a while how many calls are answered in a second.
func (a *API) Rate(t testing.TB, while time.Duration) float64 {
	t.Helper()
	before, start := a.Answers(), time.Now()
	select {
	case <-time.After(while):
	case <-t.Context().Done():
	}
	return float64(a.Answers()-before) / time.Since(start).Seconds()
}

package window_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/window"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// rig drives a Windows by short texts and notes what closes.
type rig struct {
	t   *testing.T
	w   *window.Windows[string]
	now time.Time
	got []string
}

func newRig(t *testing.T, cfg window.Config, lanes bool) *rig {
	t.Helper()
	w, err := window.New[string](cfg, lanes)
	if err != nil {
		t.Fatalf("New(%+v) = %v, want no error", cfg, err)
	}
	return &rig{t: t, w: w, now: start}
}

// do runs one step:
//
//	add a1 a2@1 b1/g c1#30 -1   events of keys a, b and c, one of partition 1, group g, 30 bytes; one without key
//	free a                      a key is freed
//	at 500ms                    the time since the start, and Expire
//	oldest, all, holding 1      close windows (for eager, drain, barrier)
//	drop 1                      a partition is dropped, noted as "dropped: …"
func (r *rig) do(step string) {
	r.t.Helper()
	verb, rest, _ := strings.Cut(step, " ")
	args := strings.Fields(rest)
	switch verb {
	case "add":
		for _, a := range args {
			r.w.Add(r.now, parseItem(r.t, a))
		}
	case "free":
		for _, key := range args {
			r.w.Free(r.now, key)
		}
	case "at":
		d, err := time.ParseDuration(rest)
		if err != nil {
			r.t.Fatal(err)
		}
		r.now = start.Add(d)
		r.w.Expire(r.now)
	case "oldest":
		r.w.CloseOldest(window.ByEager)
	case "all":
		r.w.CloseAll(window.ByDrain)
	case "holding":
		r.w.CloseHolding(number(r.t, rest), window.ByBarrier)
	case "drop":
		r.note("dropped", values(r.w.Drop(number(r.t, rest))))
	default:
		r.t.Fatalf("unknown step %q", step)
	}
	for _, c := range r.w.Take() {
		r.note(string(c.Reason), values(c.Items))
	}
}

func (r *rig) note(what string, values []string) {
	r.got = append(r.got, strings.TrimSpace(what+": "+strings.Join(values, " ")))
}

func values(items []window.Item[string]) []string {
	var vs []string
	for _, it := range items {
		vs = append(vs, it.Value)
	}
	return vs
}

func number(t *testing.T, text string) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func parseItem(t *testing.T, text string) window.Item[string] {
	t.Helper()
	rest, size, sized := strings.Cut(text, "#")
	rest, group, grouped := strings.Cut(rest, "/")
	name, partition, placed := strings.Cut(rest, "@")
	it := window.Item[string]{Value: name, Key: name[:1], Group: name[:1], Size: 1}
	if name[0] == '-' {
		it.Keyless, it.Key, it.Group = true, "", ""
	}
	if sized {
		it.Size = int64(number(t, size))
	}
	if grouped {
		it.Group = group
	}
	if placed {
		it.Partition = number(t, partition)
	}
	return it
}

// scenario is a list of steps and what they must close and drop, in order.
type scenario struct {
	name    string
	cfg     window.Config
	noLanes bool
	steps   []string
	want    []string
	open    int // windows, lanes and waiting events at the end
	lanes   int
	waiting int
}

func run(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, s.cfg, !s.noLanes)
			for _, step := range s.steps {
				r.do(step)
			}
			if !slices.Equal(r.got, s.want) {
				t.Errorf("%q\n got %q\nwant %q", s.steps, r.got, s.want)
			}
			got := [3]int{r.w.OpenWindows(), r.w.Lanes(), r.w.Waiting()}
			if want := [3]int{s.open, s.lanes, s.waiting}; got != want {
				t.Errorf("%q: open windows, lanes, waiting events: got %v, want %v", s.steps, got, want)
			}
		})
	}
}

const long = time.Minute

func TestLanes(t *testing.T) {
	pair := window.Config{Count: 2, Timeout: long}
	run(t, []scenario{
		{
			name:  "an event of a key in a batch waits until the key is freed",
			steps: []string{"add a1 a2", "free a"},
			want:  []string{"count: a1", "count: a2"},
			lanes: 1,
		},
		{
			name:  "no other key waits for it",
			steps: []string{"add a1 a2 b1 c1"},
			want:  []string{"count: a1", "count: b1", "count: c1"},
			lanes: 3, waiting: 1,
		},
		{
			name:  "a freed key with nothing behind it has no lane",
			steps: []string{"add a1", "free a"},
			want:  []string{"count: a1"},
		},
		{
			name: "a key may join the open window that all its unfinished events are in",
			cfg:  pair, steps: []string{"add a1 b1 a2"},
			want: []string{"count: a1 a2"},
			open: 1, lanes: 2,
		},
		{
			name: "a freed key fills at most one window",
			cfg:  pair, steps: []string{"add a1 a2 a3 a4 a5", "free a"},
			want:  []string{"count: a1 a2", "count: a3 a4"},
			lanes: 1, waiting: 1,
		},
		{
			name: "a freed key that does not fill its window leaves it open",
			cfg:  pair, steps: []string{"add a1 a2 a3", "free a", "add a4"},
			want:  []string{"count: a1 a2", "count: a3 a4"},
			lanes: 1,
		},
		{
			name: "a freed key joins the open window of its group and stops when that closes",
			cfg:  pair, steps: []string{"add a1/g b1/g a2/g a3/g c1/g", "free a"},
			want:  []string{"count: a1 b1", "count: c1 a2"},
			lanes: 3, waiting: 1,
		},
		{
			name: "an event of another group waits for the window its key is in",
			cfg:  pair, steps: []string{"add a1/g a2/h a3/g", "all", "free a"},
			want: []string{"drain: a1"},
			open: 1, lanes: 1, waiting: 1,
		},
		{
			name: "a freed key stops at an event of another group",
			cfg:  window.Config{Count: 9, Timeout: long}, steps: []string{"add a1/g", "all", "add a2/g a3/g a4/h a5/g", "free a", "all"},
			want:  []string{"drain: a1", "drain: a2 a3"},
			lanes: 1, waiting: 2,
		},
		{
			name: "an event behind a waiting one of its key waits, though its group's window is open",
			cfg:  pair, steps: []string{"add a1/g a2/h a3/g", "add b1/g"},
			want:  []string{"count: a1 b1"},
			lanes: 2, waiting: 2,
		},
		{
			name: "keys of one group are freed one by one",
			cfg:  pair, steps: []string{"add a1/g b1/g a2/g b2/g", "free b"},
			want: []string{"count: a1 b1"},
			open: 1, lanes: 2, waiting: 1,
		},
		{
			name:    "without lanes nothing waits, and freeing does nothing",
			noLanes: true, steps: []string{"add a1 a2", "free a a z", "add a3"},
			want: []string{"count: a1", "count: a2", "count: a3"},
		},
		{
			name: "without lanes events of a group share windows",
			cfg:  pair, noLanes: true, steps: []string{"add a1/g b1/g a2/g a3/h"},
			want: []string{"count: a1 b1"},
			open: 2,
		},
		{
			name: "events without a key never wait, and share a window per partition and group",
			cfg:  pair, steps: []string{"add -1@0 -2@1 -3@0/g -4@0 -5@0 -6@1"},
			want: []string{"count: -1 -4", "count: -2 -6"},
			open: 2,
		},
		{
			name: "events with and without a key share no window",
			cfg:  pair, steps: []string{"add a1/g -1/g b1/g"},
			want: []string{"count: a1 b1"},
			open: 1, lanes: 2,
		},
		{
			name: "a key is the same over all partitions",
			cfg:  pair, steps: []string{"add a1@0 a2@1 a3@2"},
			want:  []string{"count: a1 a2"},
			lanes: 1, waiting: 1,
		},
	})
}

func TestClosing(t *testing.T) {
	ten := window.Config{Bytes: 10, Timeout: long}
	second := window.Config{Timeout: time.Second}
	run(t, []scenario{
		{
			name:  "the zero config closes a window per event",
			steps: []string{"add a1 b1 -1 -2"},
			want:  []string{"count: a1", "count: b1", "count: -1", "count: -2"},
			lanes: 2,
		},
		{
			name: "a window closes at its bytes",
			cfg:  ten, steps: []string{"add a1#4 a2#6"},
			want:  []string{"bytes: a1 a2"},
			lanes: 1,
		},
		{
			name: "an event that would exceed the bytes closes the window first",
			cfg:  ten, steps: []string{"add a1/g#4 b1/g#7"},
			want: []string{"bytes: a1"},
			open: 1, lanes: 2,
		},
		{
			name: "an event that closes the window of its own key waits for it",
			cfg:  ten, steps: []string{"add a1#4 a2#7", "free a"},
			want: []string{"bytes: a1"},
			open: 1, lanes: 1,
		},
		{
			name: "an event larger than the bytes is a batch alone",
			cfg:  ten, steps: []string{"add a1/g#4 b1/g#70 c1/g#4"},
			want: []string{"bytes: a1", "bytes: b1"},
			open: 1, lanes: 3,
		},
		{
			name: "a freed key closes a window that it would overflow and begins another",
			cfg:  ten, steps: []string{"add a1/g#10 b1/g#5 a2/g#6 a3/g#3 a4/g#3", "free a"},
			want:  []string{"bytes: a1", "bytes: b1", "bytes: a2 a3"},
			lanes: 2, waiting: 1,
		},
		{
			name: "a window closes when the timeout has passed since its first event",
			cfg:  second, steps: []string{"add a1", "at 900ms", "add a2", "at 999ms", "at 1s"},
			want:  []string{"timeout: a1 a2"},
			lanes: 1,
		},
		{
			name: "the timeout counts from the first event, not from the last close",
			cfg:  second, steps: []string{"at 10s", "add a1", "at 10.9s", "add a2", "at 11s"},
			want:  []string{"timeout: a1 a2"},
			lanes: 1,
		},
		{
			name: "the timeout of a closed window does not touch the next one",
			cfg:  second, steps: []string{"add a1", "all", "free a", "at 600ms", "add a2", "at 1s", "at 1.6s"},
			want:  []string{"drain: a1", "timeout: a2"},
			lanes: 1,
		},
		{
			name: "a freed key's window counts from the time it was freed",
			cfg:  second, steps: []string{"add a1", "all", "add a2", "at 5s", "free a", "at 5.9s", "at 6s"},
			want:  []string{"drain: a1", "timeout: a2"},
			lanes: 1,
		},
		{
			name: "windows expire in the order they opened",
			cfg:  second, steps: []string{"add b1", "at 1ms", "add a1", "at 2ms", "add c1 b2", "at 1.001s"},
			want: []string{"timeout: b1 b2", "timeout: a1"},
			open: 1, lanes: 3,
		},
		{
			name: "the window that opened first closes first",
			cfg:  second, steps: []string{"add b1 a1 b2", "oldest", "oldest", "oldest"},
			want:  []string{"eager: b1 b2", "eager: a1"},
			lanes: 2,
		},
		{
			name: "closing all leaves waiting events in their lanes",
			cfg:  second, steps: []string{"add a1", "all", "add a2 b1", "all"},
			want:  []string{"drain: a1", "drain: b1"},
			lanes: 2, waiting: 1,
		},
		{
			name: "a barrier closes the windows that hold events of its partition and no others",
			cfg:  second, steps: []string{"add a1@0 b1@1 c1@0 c2@1 -1@1 -2@0", "holding 1", "holding 1", "holding 7"},
			want: []string{"barrier: b1", "barrier: c1 c2", "barrier: -1"},
			open: 2, lanes: 3,
		},
	})
}

package window_test

import (
	"testing"
	"time"

	"github.com/a0c75104/enricher/window"
)

func TestDrop(t *testing.T) {
	cfg := window.Config{Count: 3, Bytes: 100, Timeout: time.Second}
	run(t, []scenario{
		{
			name: "events of the partition leave windows and lanes, in the order of their key",
			cfg:  cfg, steps: []string{"add a1@1 a2@0 a3@1 a4@1 a5@0 a6@1 b1@0 c1@1", "drop 1", "free a", "all"},
			want:  []string{"count: a1 a2 a3", "dropped: c1 a4 a6", "drain: b1", "drain: a5"},
			lanes: 2,
		},
		{
			name: "an emptied window vanishes without closing, and its key is idle",
			cfg:  cfg, steps: []string{"add a1@1 -1@1", "drop 1", "at 1s", "add a2"},
			want: []string{"dropped: a1 -1"},
			open: 1, lanes: 1,
		},
		{
			name: "a window that keeps events has room for as many more as were dropped",
			cfg:  cfg, steps: []string{"add a1@1#50 a2@0#40", "drop 1", "add a3#50", "at 1s"},
			want:  []string{"dropped: a1", "timeout: a2 a3"},
			lanes: 1,
		},
		{
			name: "a key in a batch keeps its lane until it is freed",
			cfg:  window.Config{}, steps: []string{"add a1@1 a2@1", "drop 1", "add a3", "free a"},
			want:  []string{"count: a1", "dropped: a2", "count: a3"},
			lanes: 1,
		},
		{
			name: "events of other partitions enter when those before them were dropped from a window",
			cfg:  cfg, steps: []string{"add a1@1/g a2@0/h a3@0/h", "drop 1", "all"},
			want:  []string{"dropped: a1", "drain: a2 a3"},
			lanes: 1,
		},
		{
			name: "events of other partitions enter when those before them were dropped from the lane",
			cfg:  cfg, steps: []string{"add a1@0/g a2@1/h a3@0/g", "drop 1", "all"},
			want:  []string{"dropped: a2", "drain: a1 a3"},
			lanes: 1,
		},
		{
			name: "a key whose events were dropped fills at most one window",
			cfg:  window.Config{Count: 2, Timeout: time.Second}, steps: []string{"add a1@1/g a2@0/h a3@0/h a4@0/h", "drop 1"},
			want:  []string{"dropped: a1", "count: a2 a3"},
			lanes: 1, waiting: 1,
		},
		{
			name: "a window that a drop opens is closed in time",
			cfg:  cfg, steps: []string{"add a1@1/g a2@0/h", "at 900ms", "drop 1", "at 1.8s", "at 1.9s"},
			want:  []string{"dropped: a1", "timeout: a2"},
			lanes: 1,
		},
		{
			name: "a drop is felt by a barrier",
			cfg:  cfg, steps: []string{"add a1@1 a2@0", "drop 1", "holding 1", "holding 0"},
			want:  []string{"dropped: a1", "barrier: a2"},
			lanes: 1,
		},
		{
			name: "without lanes events of the partition leave the windows",
			cfg:  cfg, noLanes: true, steps: []string{"add a1@1 a2@0 b1@1", "drop 1", "all"},
			want: []string{"dropped: a1 b1", "drain: a2"},
		},
		{
			name: "a partition without events drops nothing",
			cfg:  cfg, steps: []string{"add a1@1", "drop 3"},
			want: []string{"dropped:"},
			open: 1, lanes: 1,
		},
	})
}

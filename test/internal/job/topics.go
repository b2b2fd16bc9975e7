//go:build unix

package job

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Ends returns the log end offset of each partition of topic.
func Ends(ctx context.Context, admin *kadm.Client, topic string) (map[int32]int64, error) {
	listed, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("listing the end of %q: %w", topic, err)
	}
	offsets := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { offsets[o.Partition] = o.Offset })
	return offsets, nil
}

// Committed returns the offsets that group has committed for topic. A partition without one is left out.
func Committed(ctx context.Context, admin *kadm.Client, group, topic string) (map[int32]int64, error) {
	offsets := map[int32]int64{}
	fetched, err := admin.FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return offsets, nil // nobody has joined yet
	}
	if err == nil {
		err = fetched.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("fetching the offsets of %q: %w", group, err)
	}
	for partition, o := range fetched[topic] {
		if o.At >= 0 {
			offsets[partition] = o.At
		}
	}
	return offsets, nil
}

// Idle reports whether group has committed everything that topic holds.
func Idle(ctx context.Context, admin *kadm.Client, group, topic string) (bool, error) {
	end, err := Ends(ctx, admin, topic)
	if err != nil {
		return false, err
	}
	done, err := Committed(ctx, admin, group, topic)
	return Sum(done) == Sum(end), err
}

// Owners returns how many members of the group have partitions.
func Owners(ctx context.Context, admin *kadm.Client, group string) (int, error) {
	described, err := admin.DescribeGroups(ctx, group)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, m := range described[group].Members {
		if assigned, ok := m.Assigned.AsConsumer(); ok && len(assigned.Topics) > 0 {
			n++
		}
	}
	return n, nil
}

// Sum adds offsets up.
func Sum(offsets map[int32]int64) int64 {
	var n int64
	for _, o := range offsets {
		n += o
	}
	return n
}

// WaitFor polls until cond holds, and fails the test when patience is over.
func WaitFor(t testing.TB, patience time.Duration, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// Must ends the test with err, if there is one.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

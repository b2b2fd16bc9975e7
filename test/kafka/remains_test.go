//go:build unix

package kafka_test

import (
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// disordered returns how many outputs of a topic, from offsets on, stand behind one of a later event of their key. Events
// are numbers that grow, as put writes them; what is none has no order, nor has what is written again.
func disordered(t testing.TB, c *cluster.Cluster, topic string, from map[int32]int64) (n int64) {
	t.Helper()
	type lane struct {
		key       string
		partition int32
	}
	newest, seen := map[lane]int{}, map[int]bool{}
	job.EachRecord(t, c.Admin, c.Direct(), topic, func(r *kgo.Record) {
		v, err := strconv.Atoi(string(r.Value))
		if err != nil || r.Offset < from[r.Partition] || seen[v] {
			return
		}
		seen[v] = true
		if r.Key == nil {
			t.Errorf("output %d/%d of %s has no key, and its event had one", r.Partition, r.Offset, topic)
		}
		of := lane{string(r.Key), r.Partition}
		if v < newest[of] {
			n++
		}
		newest[of] = max(newest[of], v)
	}, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	return n
}

// ours are the calls of this module that are not of its tests.
var ours = regexp.MustCompile(`(?m)^(created by )?github\.com/a0c75104/enricher/(kafka|streammanager|pipeline|functions|window|event)[./(]`)

// checkNoneLeft fails where a goroutine of a pipeline that ran inside the test has outlived it.
func checkNoneLeft(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; pause(t, 20*time.Millisecond) { // one that was just told may take a moment
		text, left := make([]byte, 4<<20), ""
		text = text[:runtime.Stack(text, true)]
		for _, g := range strings.Split(string(text), "\n\n") {
			if ours.MatchString(g) {
				left += g + "\n\n"
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("all pipelines have ended, and these goroutines are left:\n%s", left)
			return
		}
	}
}

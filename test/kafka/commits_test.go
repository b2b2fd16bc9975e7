//go:build unix

package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// commit is an offset that the broker took for a group.
type commit struct {
	topic     string
	partition int32
	offset    int64
	metadata  string
	at        time.Time
}

// commits returns all that the broker took for the group of the suite.
func (u *suite) commits() []commit {
	u.t.Helper()
	return commitsOf(u.t, u.c, u.group)
}

// commitsOf returns all that the broker took for a group, in its order of each partition. What a transaction that was
// aborted had committed is none.
func commitsOf(t testing.TB, c *cluster.Cluster, group string) []commit {
	t.Helper()
	var all []commit
	job.EachRecord(t, c.Admin, c.Direct(), offsetsTopic, func(r *kgo.Record) {
		key, value := kmsg.NewOffsetCommitKey(), kmsg.NewOffsetCommitValue()
		if len(r.Key) < 2 || r.Key[0] != 0 || r.Key[1] > 1 || r.Value == nil { // other versions are of the group itself
			return
		}
		must(t, key.ReadFrom(r.Key))
		must(t, value.ReadFrom(r.Value))
		if key.Group == group {
			all = append(all, commit{key.Topic, key.Partition, value.Offset, value.Metadata, time.UnixMilli(value.CommitTimestamp)})
		}
	}, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	return all
}

// committedBy returns what was committed of a topic when a worker was killed, by the broker's times. A commit that was under
// way may come a little later. What the next owner commits comes after it was assigned the partition, and no sooner than
// the session of the one that was killed has ended.
func (u *suite) committedBy(w *worker, topic string, kept []commit) map[int32]int64 {
	until := map[int32]time.Time{}
	for _, a := range u.assignments() {
		if next, any := until[a.partition]; a.topic == topic && a.at.After(w.crashedAt) && (!any || a.at.Before(next)) {
			until[a.partition] = a.at.Truncate(time.Millisecond) // as the times of commits are
		}
	}
	committed := map[int32]int64{}
	for _, c := range kept {
		next, any := until[c.partition]
		if c.topic == topic && c.at.Before(w.crashedAt.Add(time.Second)) && (!any || c.at.Before(next)) {
			committed[c.partition] = c.offset
		}
	}
	return committed
}

// lastCommit returns when the broker took the last commit of a worker, by the partitions that it had then.
func (u *suite) lastCommit(w *worker, kept []commit) time.Time {
	var last time.Time
	by := u.committers(kept)
	for i, c := range kept {
		if by[i] == w.Name && c.at.After(last) {
			last = c.at
		}
	}
	return last
}

// committers returns of which worker each commit is: the one that was assigned the partition last.
func (u *suite) committers(kept []commit) []string {
	type place struct {
		topic     string
		partition int32
	}
	assigned := map[place][]assignment{}
	for _, a := range u.assignments() {
		of := place{a.topic, a.partition}
		a.at = a.began(kept)
		assigned[of] = append(assigned[of], a)
	}
	by := make([]string, len(kept))
	for i, c := range kept {
		var owner assignment
		for _, a := range assigned[place{c.topic, c.partition}] {
			if a.at.After(owner.at) && !a.at.Truncate(time.Millisecond).After(c.at) {
				owner = a
			}
		}
		by[i] = owner.worker
	}
	return by
}

// since returns how many of the outputs and error events of a worker that was killed have left since its last commit. That is to be no longer ago
// than some seconds, whatever the machine does beside: without commits the number would bound nothing.
func (u *suite) since(w *worker, of []*made, kept []commit) int {
	u.t.Helper()
	n, last := 0, u.lastCommit(w, kept)
	first := w.crashedAt
	for _, m := range of {
		if !m.at.Before(last) {
			n++
			first = minTime(first, m.at)
		}
	}
	if d := w.crashedAt.Sub(first); d > longestWithoutCommit {
		u.t.Errorf("%s was killed %v after the first of %d outputs that left after its last commit", w.Name, d, n)
	}
	return n
}

// longestWithoutCommit is how long outputs of a worker may leave without a commit, where nothing is wrong with the brokers.
const longestWithoutCommit = 5 * time.Second

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// countCommits returns how many requests to commit the broker took, how many of them had something new in them, and of how many
// topics. The offsets of one request follow each other and have the same time; two that came within a millisecond from
// different workers count as one. A request that has in it what was committed already is the same one sent again: a
// coordinator that moves takes it, and does not come to answer.
func countCommits(all []commit) (requests, anew, topics int) {
	type place struct {
		topic     string
		partition int32
	}
	newest, names := map[place]commit{}, map[string]bool{}
	var at time.Time
	in, counted := map[place]bool{}, false // of the request that is looked at
	for _, c := range all {
		of := place{c.topic, c.partition}
		if requests == 0 || !c.at.Equal(at) || in[of] {
			requests++
			at, in, counted = c.at, map[place]bool{}, false
		}
		in[of], names[c.topic] = true, true
		if last, any := newest[of]; !counted && (!any || last.offset != c.offset || last.metadata != c.metadata) {
			anew, counted = anew+1, true
		}
		newest[of] = c
	}
	return requests, anew, len(names)
}

// checkStarts holds where each assignment began to what was committed when it did: an assignment that began before that
// would repeat what is finished.
func (u *suite) checkStarts(kept []commit) {
	u.t.Helper()
	for _, a := range u.assignments() {
		if wrong := a.wrongStart(kept); wrong != "" {
			u.t.Errorf("%s was assigned partition %d of %s from offset %d on, %s", a.worker, a.partition, a.topic, a.offset, wrong)
		}
	}
}

// began returns when an assignment began, by what was committed. What was logged just after a pause may have come before it:
// it has, where it began before what was committed meanwhile.
func (a assignment) began(kept []commit) time.Time {
	late := a
	if late.at = a.logged; late.wrongStart(kept) == "" {
		return a.logged
	}
	return a.at
}

// wrongStart says what is wrong with where an assignment began, by what was committed before it.
func (a assignment) wrongStart(kept []commit) string {
	newest := int64(-1)
	for _, c := range kept {
		if c.topic == a.topic && c.partition == a.partition && c.at.Before(a.at) {
			newest = max(newest, c.offset)
		}
	}
	if a.offset < newest {
		return fmt.Sprintf("where %d was committed already", newest)
	}
	return ""
}

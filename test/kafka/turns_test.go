//go:build unix

package kafka_test

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
)

// turn is the time in which a worker has a partition of a topic: what one began with an assignment, or by going back.
type turn struct {
	assignment
	began time.Time // at, or later: when it is counted as begun
	anew  *turn     // the one before of the same worker, which it goes on for until the group has given it the partition or not
	next  *turn     // of the partition
	how   string    // it ended: the word for it; empty: the log does not say
	end   time.Time
	kept  time.Time // the last commit that the broker took of it, else began
	open  []*made   // what was written in it and is read again by the next one
}

// The ways in which a turn ends.
const (
	revoked = "revoked" // in good order: all that is finished was committed
	stopped = "stopped" // likewise
	lost    = "lost"
	back    = "back" // the worker went back to what was committed
	killed  = "killed"
)

// made is something that was written of an event.
type made struct {
	id     int         // of the event
	of     []job.Place // where the event was read: one of these
	worker string      // that wrote it; empty: nobody knows
	at     time.Time
	place  job.Place // of those where it was read
	turn   *turn     // in which that was
	again  bool      // it was written again in a later one
}

// turns returns those of all workers with a topic, of each partition in their order, without what was made in them.
func (u *suite) turns(topic string, kept []commit) map[int32][]*turn {
	all := map[int32][]*turn{}
	for _, w := range u.workers {
		for _, t := range w.turns(topic) {
			if t.assignment.began(kept).Equal(t.logged) {
				t.began = t.logged
			}
			all[t.partition] = append(all[t.partition], t)
		}
	}
	for p, of := range all {
		slices.SortStableFunc(of, func(a, b *turn) int { return a.rank().Compare(b.rank()) })
		for i, t := range of {
			for _, later := range of[i+1:] { // one that began anew comes after whoever was given the partition meanwhile
				if t.next == nil || later.began.Before(t.next.began) {
					t.next = later
				}
			}
			t.kept = t.began
			var last commit
			for _, c := range kept {
				if c.topic != topic || c.partition != p || t.next != nil && c.at.After(t.next.began) {
					continue
				}
				if anew := c.offset != last.offset || c.metadata != last.metadata; anew && c.at.After(t.kept) {
					t.kept = c.at // and no commit that was sent again since nobody answered
				}
				last = c
			}
		}
	}
	return all
}

// rank is by when turns come one after the other: whoever was given the partition meanwhile comes after one that began anew.
func (t *turn) rank() time.Time {
	for t.anew != nil {
		t = t.anew
	}
	return t.began
}

// atOnce is how soon a worker begins anew what it has lost: before it has joined the group again.
const atOnce = 100 * time.Millisecond

// turns returns those of a worker, from its log.
func (w *worker) turns(topic string) []*turn {
	var all []*turn
	has := map[int32]*turn{}
	begin := func(a assignment) {
		if t := has[a.partition]; t != nil && t.how == "" {
			t.end, t.how = a.logged, lost // in a failure of the pipeline, which begins anew
		}
		if last := has[a.partition]; last != nil && a.at.Before(last.end) {
			a.at = last.end // not before that, be it logged after a pause
		}
		t := &turn{assignment: a, began: a.at}
		if last := has[a.partition]; last != nil && last.how == lost && a.logged.Sub(last.end) < atOnce {
			t.anew = last
		}
		has[a.partition] = t
		all = append(all, t)
	}
	end := func(p int32, at time.Time, how string) {
		if t := has[p]; t != nil {
			t.end, t.how = at, how
		}
	}
	var last time.Time
	for _, l := range w.logged("") {
		last = l.Time
		of := l.Topic == topic
		switch {
		case of && l.Msg == "partition assigned":
			begin(l.assignmentOf(w))
		case of && l.Msg == "partition revoked":
			end(l.Partition, l.Time, revoked)
		case of && l.Msg == "partition lost":
			end(l.Partition, l.Time, lost)
		case strings.Contains(l.Msg, ": going back to the committed offsets"):
			for p, t := range has {
				if t.how == "" { // it begins anew
					end(p, l.Time, back)
					a := t.assignment
					a.at, a.logged = l.Time, l.Time
					begin(a)
				}
			}
		}
	}
	for p, t := range has {
		switch {
		case t.how != "" || w.Running():
		case w.crashed:
			end(p, w.crashedAt, killed)
		default:
			end(p, last, stopped)
		}
	}
	return all
}

// better reports whether something that was made at a time is rather of t than of other: of one that is known to have begun
// by then, and of the newest of these.
func (t *turn) better(other *turn, made time.Time) bool {
	begun, otherBegun := !t.began.Truncate(time.Millisecond).After(made), !other.began.Truncate(time.Millisecond).After(made)
	if begun != otherBegun {
		return begun
	}
	return !t.rank().Before(other.rank())
}

// give finds the turn in which each thing was made: a worker makes one in each turn in which it reads an event, from the time
// on when it was assigned the partition. It returns those for which there is none.
func give(turns map[int32][]*turn, all []*made) (none []*made) {
	type reading struct {
		turn  *turn
		place job.Place
	}
	used, at := map[reading]bool{}, map[job.Place][]*made{}
	slices.SortStableFunc(all, func(a, b *made) int { return b.at.Compare(a.at) }) // the newest have the most to choose from
	for _, m := range all {
		for _, place := range m.of {
			for _, t := range turns[place.Partition] {
				if m.worker != "" && t.worker != m.worker || t.offset > place.Offset || t.at.Truncate(time.Millisecond).After(m.at) || used[reading{t, place}] {
					continue
				}
				if m.turn == nil || t.better(m.turn, m.at) { // the newest, and in it the last place
					m.turn, m.place = t, place
				}
			}
		}
		if m.turn == nil {
			none = append(none, m)
			continue
		}
		used[reading{m.turn, m.place}] = true
		at[m.place] = append(at[m.place], m)
	}
	for place, of := range at {
		slices.SortStableFunc(of, func(a, b *made) int {
			return cmp.Or(a.turn.rank().Compare(b.turn.rank()), a.turn.began.Compare(b.turn.began))
		})
		for i, m := range of {
			m.again = i+1 < len(of)
			// Where one begins that goes back the log does not say: more than was committed may be finished.
			if next := m.turn.next; m.again || next != nil && m.turn.how != back && place.Offset >= next.offset {
				m.turn.open = append(m.turn.open, m)
			}
		}
	}
	return none
}

// given returns the commit from which a turn began; false where it is not known. Of those of its offset it is the one that has as
// much finished as the worker says, else the first.
func (t *turn) given(kept []commit) (given commit, ok bool) {
	for _, c := range kept {
		if c.topic != t.topic || c.partition != t.partition || c.offset != t.offset || c.at.After(t.began) {
			continue
		}
		if same := c.beyond() == t.beyond; same || !ok {
			if given, ok = c, true; same {
				break
			}
		}
	}
	return given, ok
}

// beyond returns how many offsets a commit says to be finished beyond its own.
func (c commit) beyond() (n int64) {
	for _, r := range c.finished() {
		n += r[1] - r[0]
	}
	return n
}

// finished returns what a commit says to be finished beyond its offset: from where on to before where.
func (c commit) finished() (ranges [][2]int64) {
	_, text, _ := strings.Cut(c.metadata, " finished=")
	text, _, _ = strings.Cut(text, " ")
	packed, err := base64.RawURLEncoding.DecodeString(text)
	for at := c.offset; err == nil && len(packed) > 0; { // how far the next one is, and how long
		gap, n := binary.Uvarint(packed)
		length, m := binary.Uvarint(packed[max(n, 0):])
		if n <= 0 || m <= 0 {
			break
		}
		from := at + int64(gap)
		at = from + int64(length)
		ranges, packed = append(ranges, [2]int64{from, at}), packed[n+m:]
	}
	return ranges
}

// has reports whether a commit says of an offset beyond its own that it is finished.
func (c commit) has(offset int64) bool {
	return slices.ContainsFunc(c.finished(), func(r [2]int64) bool { return r[0] <= offset && offset < r[1] })
}

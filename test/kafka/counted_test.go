//go:build unix

package kafka_test

import (
	"time"
)

// request is a commit as it was sent: offsets of one worker that the broker took at one time.
type request struct {
	worker string
	at     time.Time
	anew   bool // something in it was not committed already; else it is one that was sent again, since nobody had answered
}

// requests returns the requests to commit that the broker took, without those of where a topic begins: these are sent before
// anything is read, and are not counted. A worker waits for the answer to one before it sends the next.
func (u *suite) requests(kept []commit) []request {
	type place struct {
		topic     string
		partition int32
	}
	newest, in := map[place]commit{}, map[place]bool{}
	var all []request
	by := u.committers(kept)
	for i, c := range kept {
		of := place{c.topic, c.partition}
		last, begun := newest[of]
		newest[of] = c
		if !begun {
			continue
		}
		if n := len(all); n == 0 || all[n-1].worker != by[i] || !all[n-1].at.Equal(c.at) || in[of] {
			all, in = append(all, request{worker: by[i], at: c.at}), map[place]bool{}
		}
		in[of] = true
		if last.offset != c.offset || last.metadata != c.metadata {
			all[len(all)-1].anew = true
		}
	}
	return all
}

// checkCountedCommits holds the commits that each worker had counted to those that the broker took of it: when it had nothing
// to do any more, else when it was seen last. No more had succeeded than the broker took until it had told, and all were tried
// that had something new, but for one on its way when it was asked.
func (u *suite) checkCountedCommits(kept []commit) {
	u.t.Helper()
	all := u.requests(kept)
	taken, held := 0, 0.0
	for _, w := range u.workers {
		s, underway := w.watch.Last(), 1.0
		if w.rested {
			s.Commits, s.Tried, underway = w.commits, w.tried, 0
			s.At, s.Told = w.EndedAt(), w.EndedAt()
		}
		least, most := 0.0, 0.0
		for _, r := range all {
			if r.worker != w.Name {
				continue
			}
			taken++
			if r.anew && r.at.Before(s.At) {
				least++
			}
			if !r.at.After(s.Told) {
				most++
			}
		}
		held += s.Commits
		if s.Commits > most || s.Tried+underway < least {
			u.t.Errorf("%s had counted %.0f commits, %.0f with those that failed, by %v, and by then the broker had %.0f of it, %.0f of them with something new",
				w.Name, s.Commits, s.Tried, s.Told.Format(time.StampMilli), most, least)
		}
	}
	if taken != len(all) || held == 0 {
		u.t.Errorf("of %d commits that the broker took, %d are of a worker, and the workers had counted %.0f", len(all), taken, held)
	}
	u.t.Logf("agreed: the broker took %d commits, and the workers had counted %.0f of them when they were seen last", len(all), held)
}

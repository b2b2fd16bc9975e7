package streammanager

import (
	"container/heap"
	"time"
)

// timer is something due at a time: the next try of flows, or the look at a call that may hang.
type timer struct {
	at    time.Time
	flows []*flow
	call  *call
	index int
}

type timers []*timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i]; t[i].index, t[j].index = i, j }
func (t *timers) Push(x any)        { e := x.(*timer); e.index = len(*t); *t = append(*t, e) }
func (t *timers) Pop() any {
	old := *t
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	last.index = -1
	return last
}

func (t *timers) add(e *timer) { heap.Push(t, e) }

func (t *timers) remove(e *timer) {
	if e.index >= 0 && e.index < len(*t) && (*t)[e.index] == e {
		heap.Remove(t, e.index)
	}
}

// wake has a timer due now, unless it is over.
func (t *timers) wake(e *timer, now time.Time) {
	if e.index >= 0 && e.index < len(*t) && (*t)[e.index] == e && e.at.After(now) {
		e.at = now
		heap.Fix(t, e.index)
	}
}

// due takes the first timer whose time has come.
func (t *timers) due(now time.Time) *timer {
	if len(*t) == 0 || (*t)[0].at.After(now) {
		return nil
	}
	return heap.Pop(t).(*timer)
}

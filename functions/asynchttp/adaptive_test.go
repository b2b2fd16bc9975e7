package asynchttp

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// simulated is a stream with more events than it can send, calling a server, in virtual time.
type simulated struct {
	workers int
	events  int                                           // that wait for their turn or are called
	answer  func(t time.Duration, running int) float64    // seconds of an answer
	limit   *adaptive                                     // nil: the workers alone
	other   func(took time.Duration, running int) float64 // another way to find a limit; nil: none
	fails   func(t time.Duration) bool

	queue   happenings
	idle    []happening // would call, and no worker is free
	busy    int
	allowed float64
}

type happening struct {
	at    time.Duration
	place time.Time
	took  time.Duration // it is the end of a call that took so long; 0: an event comes
}

type happenings []happening

func (h happenings) Len() int           { return len(h) }
func (h happenings) Less(i, j int) bool { return h[i].at < h[j].at }
func (h happenings) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *happenings) Push(x any)        { *h = append(*h, x.(happening)) }
func (h *happenings) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// second is what one second of a simulation brought.
type second struct {
	answers int
	limit   float64 // mean
}

func (s *simulated) run(d time.Duration) []second {
	out := make([]second, int(d/time.Second))
	for i := range s.events {
		heap.Push(&s.queue, happening{at: time.Duration(i) * time.Microsecond})
	}
	looks := make([]int, len(out))
	for s.queue.Len() > 0 {
		h := heap.Pop(&s.queue).(happening)
		if h.at >= d {
			return out
		}
		i := int(h.at / time.Second)
		if h.took == 0 {
			s.arrive(h)
			continue
		}
		s.busy--
		r := resultAnswered
		if s.fails != nil && s.fails(h.at) {
			r = resultFailed
		} else {
			out[i].answers++
		}
		limit := float64(s.workers)
		switch {
		case s.limit != nil:
			s.limit.done(began.Add(h.at), h.took, r, s.busy)
			limit = float64(s.limit.allowed())
		case s.other != nil:
			s.allowed = s.other(h.took, s.busy)
			limit = s.allowed
		}
		looks[i]++
		out[i].limit += (limit - out[i].limit) / float64(looks[i])
		heap.Push(&s.queue, happening{at: h.at + 1}) // the next event
		if len(s.idle) > 0 {
			first := s.idle[0]
			s.idle = s.idle[1:]
			first.at = h.at
			heap.Push(&s.queue, first)
		}
	}
	return out
}

func (s *simulated) arrive(h happening) {
	if s.busy >= s.workers || s.other != nil && float64(s.busy) >= math.Max(1, math.Floor(s.allowed)) {
		s.idle = append(s.idle, h)
		return
	}
	if s.limit != nil {
		if until, ok := s.limit.take(began.Add(h.at), h.place, s.busy); !ok {
			heap.Push(&s.queue, happening{at: until.Sub(began), place: until})
			return
		}
	}
	s.busy++
	took := time.Duration(s.answer(h.at, s.busy) * float64(time.Second))
	heap.Push(&s.queue, happening{at: h.at + took, took: took})
}

// degrading answers in 20 ms up to a number of calls at once, which changes with time, and beyond it slower
// by a power of how many there are too many.
func degrading(power, spread float64, carries func(t time.Duration) int) func(time.Duration, int) float64 {
	r := rand.New(rand.NewPCG(1, 2))
	return func(t time.Duration, running int) float64 {
		took := 0.020 * (1 + spread*(2*r.Float64()-1))
		if k := float64(carries(t)); float64(running) > k {
			took *= math.Pow(float64(running)/k, power)
		}
		return took
	}
}

func mean(s []second) (answers, limit float64) {
	for _, x := range s {
		answers += float64(x.answers) / float64(len(s))
		limit += x.limit / float64(len(s))
	}
	return answers, limit
}

// bestFixed is how many answers a second as many workers bring as the server carries calls. More bring no
// more, and where the power is above 1 fewer.
func bestFixed(carries int) float64 { return float64(carries) / 0.020 }

// phases is a server that carries 32 calls at once, then half as many, and twice as many.
func phases(t time.Duration) int { return []int{32, 16, 32, 64}[min(int(t/(30*time.Second)), 3)] }

func TestTheBestFixedNumberOfWorkersIsWhatTheServerCarries(t *testing.T) {
	for _, workers := range []int{24, 32, 48} {
		s := simulated{workers: workers, events: 1000, answer: degrading(2, 0.5, func(time.Duration) int { return 32 })}
		if got, _ := mean(s.run(6 * time.Second)[1:]); got > 1.01*bestFixed(32) || workers == 32 && got < 0.99*bestFixed(32) {
			t.Errorf("%d workers bring %.0f answers a second, want at most %.0f, which 32 bring", workers, got, bestFixed(32))
		}
	}
}

func TestAdaptiveSettlesNearTheBestFixedNumberAndFollowsIt(t *testing.T) {
	for _, power := range []float64{1, 2, 4} {
		for _, spread := range []float64{0, 0.5} {
			t.Run(fmt.Sprintf("power %v spread %v", power, spread), func(t *testing.T) {
				s := simulated{workers: 128, events: 1000, answer: degrading(power, spread, phases), limit: newAdaptive(128, began)}
				got := s.run(2 * time.Minute)
				for i, carries := range []int{32, 16, 32, 64} {
					best := bestFixed(carries)
					answers, limit := mean(got[i*30+10 : i*30+30])
					t.Logf("carries %d: best fixed %.0f a second; adaptive %.1f with %.0f (%.0f%%)", carries, best, limit, answers, 100*answers/best)
					if answers < 0.8*best {
						t.Errorf("server that carries %d: %.0f answers a second, want 80%% of %.0f", carries, answers, best)
					}
					if limit < 0.8*float64(carries) || limit > 1.2*float64(carries) {
						t.Errorf("server that carries %d: limit %.1f, want it within 20%%", carries, limit)
					}
				}
			})
		}
	}
}

func TestAdaptiveUsesAllWorkersOfAServerThatCarriesThem(t *testing.T) {
	s := simulated{workers: 64, events: 1000, answer: degrading(2, 0.5, func(time.Duration) int { return 1000 }), limit: newAdaptive(64, began)}
	best, _ := mean((&simulated{workers: 64, events: 1000, answer: s.answer}).run(20 * time.Second)[5:])
	if answers, limit := mean(s.run(60 * time.Second)[20:]); answers < 0.9*best || limit < 0.8*64 {
		t.Errorf("%.0f answers a second with a limit of %.1f, want nearly the %.0f of 64 workers", answers, limit, best)
	}
}

func TestAdaptiveCallsAServerNoLessThatIsSlowerByItself(t *testing.T) {
	fast := degrading(2, 0.5, func(time.Duration) int { return 32 })
	s := simulated{workers: 128, events: 1000, limit: newAdaptive(128, began), answer: func(t time.Duration, running int) float64 {
		if t > 20*time.Second {
			return 2 * fast(t, running)
		}
		return fast(t, running)
	}}
	if answers, limit := mean(s.run(90 * time.Second)[70:]); answers < 0.8*bestFixed(32)/2 || limit < 0.8*32 || limit > 1.2*32 {
		t.Errorf("%.0f answers a second with a limit of %.1f, want nearly %.0f, and 32 as before", answers, limit, bestFixed(32)/2)
	}
}

func TestAdaptiveGoesDownWhileCallsFailAndComesBack(t *testing.T) {
	s := simulated{
		workers: 64, events: 1000, answer: degrading(2, 0.5, func(time.Duration) int { return 32 }), limit: newAdaptive(64, began),
		fails: func(t time.Duration) bool { return t > 30*time.Second && t < 40*time.Second },
	}
	got := s.run(90 * time.Second)
	if _, limit := mean(got[38:40]); limit > 4 {
		t.Errorf("limit %.1f after eight seconds in which all calls failed", limit)
	}
	if _, limit := mean(got[75:]); limit < 0.8*32 || limit > 1.2*32 {
		t.Errorf("limit %.1f half a minute later, want about 32", limit)
	}
}

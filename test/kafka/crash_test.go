//go:build unix

package kafka_test

import (
	"math/rand/v2"
	"testing"
	"time"
)

// One of two workers is killed at a random moment, again and again.
func TestKilledWorkersLoseNothingAndRepeatNoMoreThanTheyHadInFlight(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{fails: true})
	random := rand.New(rand.NewPCG(1, 2))
	u.begin()
	pair := []*worker{u.start(), u.start()}
	for range rounds(2, 50) {
		u.rounds++
		victim := &pair[random.IntN(2)]
		u.working(*victim)
		pause(t, time.Duration(random.IntN(300))*time.Millisecond)
		u.crash(*victim)
		*victim = u.start()
		if random.IntN(4) == 0 { // and at once, while it joins
			u.crash(*victim)
			*victim = u.start()
		}
	}
	u.progress(200)
	if b := u.check(0); b.Repeated == 0 {
		t.Error("nothing is repeated: the workers were killed when they did nothing")
	}
}

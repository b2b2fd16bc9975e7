//go:build unix

package kafka_test

import (
	"testing"
	"time"
)

// A worker is stopped while it waits for the place of one that was killed: the next one waits for the
// killed one alone.
func TestAWorkerThatIsStoppedWhileItJoinsHoldsUpNobody(t *testing.T) {
	u := newSuite(t, shared.one(t), setup{set: []string{`source.kafka.options["session.timeout.ms"]=25000`}})
	u.begin()
	w := u.start()
	u.working(w)
	u.crash(w)
	crashed := time.Now()
	waiting := u.start()
	waitFor(t, "its join is at the broker", func() bool {
		found, err := u.c.Admin.DescribeGroups(t.Context(), u.group)
		return err == nil && len(found[u.group].Members) == 2
	})
	u.stop(waiting)
	u.working(u.start())
	if took := time.Since(crashed); took > 45*time.Second {
		t.Errorf("the next worker worked %v after the crash, with a session timeout of 25s", took)
	}
	u.rounds = 1
	u.check(0)
}

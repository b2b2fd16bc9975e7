package kafka

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/twmb/franz-go/pkg/kerr"
)

// mostCauses bounds what is said of one trouble before it has healed.
const mostCauses = 8

// Voice decides what is said of what is wrong, on behalf of the clients that share it, which are those of
// one pipeline: each cause once for each cluster, until all of its clients are well again. The zero Voice
// is fit for use.
type Voice struct {
	mu   sync.Mutex // guards open
	open map[subject]*talk
}

// subject is what a voice talks about. Whether the last write failed is each sink's own.
type subject struct {
	trouble
	cluster string // its brokers, as the client was given them
	own     *troubles
}

// talk is what was said of a trouble.
type talk struct {
	of     map[*troubles]struct{} // who has it
	causes []string               // that were said, or went without saying
	aloud  bool                   // something was said
	stale  bool                   // the brokers have answered since
}

func subjectOf(t *troubles, what trouble) subject {
	at := subject{trouble: what, cluster: strings.Join(t.brokers, ",")}
	if what.kind == troubleSink {
		at.own = t
	}
	return at
}

// note reports whether err is to be said.
func (v *Voice) note(t *troubles, what trouble, err error) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	at, cause := subjectOf(t, what), causeOf(err)
	k := v.open[at]
	if k == nil {
		k = &talk{of: map[*troubles]struct{}{}}
		if v.open == nil {
			v.open = map[subject]*talk{}
		}
		v.open[at] = k
	}
	k.of[t], k.stale = struct{}{}, false
	if len(k.causes) >= mostCauses || slices.Contains(k.causes, cause.text) {
		return false
	}
	say := !v.covered(at, cause)
	if say || at.kind != troubleBroker { // a broker that stays away when others answer again is said then
		k.causes = append(k.causes, cause.text)
	}
	k.aloud = k.aloud || say
	return say
}

// covered reports whether a cause goes without saying since it was said of another trouble: that no broker
// answers, that some cannot be reached, and that the group cannot be joined are mostly one thing.
func (v *Voice) covered(at subject, cause cause) bool {
	if !network(at.kind) {
		return false
	}
	for other, k := range v.open {
		if other == at || other.cluster != at.cluster || !network(other.kind) || !k.aloud || k.stale {
			continue
		}
		if slices.Contains(k.causes, cause.text) || other.kind == troubleBroker && at.kind != troubleBroker && !cause.answer {
			return true
		}
	}
	return false
}

func network(kind int) bool {
	return kind == troubleCluster || kind == troubleGroup || kind == troubleBroker
}

// healed reports whether that is to be said, which it is when the last client is well and something was
// said before.
func (v *Voice) healed(t *troubles, what trouble) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := subjectOf(t, what)
	if what.kind == troubleCluster {
		// One broker may stay away for good, and must not cover what happens later.
		for other, k := range v.open {
			k.stale = k.stale || other.cluster == at.cluster
		}
	}
	return v.forget(t, at)
}

// forget takes a trouble from t and reports whether something was said of it and nobody has it any more.
// The caller holds mu.
func (v *Voice) forget(t *troubles, at subject) bool {
	k := v.open[at]
	if k == nil {
		return false
	}
	delete(k.of, t)
	if len(k.of) > 0 {
		return false
	}
	delete(v.open, at)
	return k.aloud
}

// leave forgets what t has, which is closed.
func (v *Voice) leave(t *troubles) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for at := range v.open {
		v.forget(t, at)
	}
}

// cause tells one cause from another.
type cause struct {
	text   string
	answer bool // a broker gave it
}

// causeOf finds what is at the bottom of err. Ports, times and sizes differ from try to try, so digits do
// not count.
func causeOf(err error) cause {
	var said *kerr.Error
	if errors.As(err, &said) {
		return cause{said.Message, true}
	}
	if timedOut(err) {
		return cause{"no answer", false}
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return cause{strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error()), false}
}

// timedOut reports whether err says that something took too long: a context, a connection, a read.
func timedOut(err error) bool {
	var slow net.Error
	return errors.As(err, &slow) && slow.Timeout()
}

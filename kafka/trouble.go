package kafka

import (
	"log/slog"
	"sync"
)

// The kinds of trouble, the most telling first.
const (
	troubleTopic     = iota // a topic that does not exist, or may not be read or written
	troublePartition        // a partition that cannot be read
	troubleStart            // the start of a topic is not settled
	troubleCluster          // no broker answers
	troubleGroup            // the group cannot be joined
	troubleSink             // the last write failed
	troubleBroker           // one broker cannot be reached; alone it says nothing about health
)

var troubleNames = [...]string{"topic", "partition", "start", "cluster", "group", "sink", "broker"}

// trouble names something that can be wrong.
type trouble struct {
	kind  int
	about string
}

// troubles remembers what is wrong, for Health, and logs each once until it has healed.
type troubles struct {
	log *slog.Logger

	mu   sync.Mutex // guards open
	open map[trouble]error
}

func newTroubles(log *slog.Logger) *troubles {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &troubles{log: log, open: map[trouble]error{}}
}

// note remembers err and logs it unless the same trouble is known. That no broker answers goes without
// saying once it was said of one.
func (t *troubles) note(what trouble, err error) {
	t.mu.Lock()
	_, known := t.open[what]
	if what.kind == troubleCluster && t.worstLocked(troubleBroker, troubleBroker) != nil {
		known = true
	}
	t.open[what] = err
	t.mu.Unlock()
	if !known {
		t.log.Warn("kafka: trouble, trying again until it heals", "kind", troubleNames[what.kind], "about", what.about, "err", err)
	}
}

// healed forgets a trouble.
func (t *troubles) healed(what trouble) {
	t.mu.Lock()
	_, known := t.open[what]
	delete(t.open, what)
	t.mu.Unlock()
	if known {
		t.log.Info("kafka: trouble healed", "kind", troubleNames[what.kind], "about", what.about)
	}
}

// worst returns the most telling trouble of the kinds up to last, nil if there is none.
func (t *troubles) worst(last int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.worstLocked(0, last)
}

// worstLocked is worst, of the kinds from first. The caller holds mu.
func (t *troubles) worstLocked(first, last int) error {
	var found error
	var at trouble
	for what, err := range t.open {
		if what.kind < first || what.kind > last {
			continue
		}
		if found == nil || what.kind < at.kind || what.kind == at.kind && what.about < at.about {
			at, found = what, err
		}
	}
	return found
}

package kafka

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The kinds of trouble, the most telling first.
const (
	troubleTopic       = iota // a topic that does not exist, or may not be read or written
	troublePartition          // a partition that cannot be read
	troubleStall              // something stands still
	troubleStart              // the start of a topic is not settled
	troubleCluster            // no broker answers
	troubleGroup              // the group cannot be joined
	troubleTransaction        // transactions are not committed
	troubleSink               // the last write to a topic failed
	troubleBroker             // one broker cannot be reached; alone it says nothing about health
)

var troubleNames = [...]string{"topic", "partition", "stall", "start", "cluster", "group", "transaction", "sink", "broker"}

// trouble names something that can be wrong.
type trouble struct {
	kind  int
	about string
}

// troubles remembers what is wrong for one client, for Health, and has it said.
type troubles struct {
	log     *slog.Logger
	brokers []string

	voice *Voice

	mu     sync.Mutex // guards what follows; taken before the voice's
	open   map[trouble]error
	closed bool
}

func newTroubles(log *slog.Logger, c *Connection) *troubles {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	voice := c.Voice
	if voice == nil {
		voice = new(Voice)
	}
	return &troubles{log: log, brokers: c.Brokers, voice: voice, open: map[trouble]error{}}
}

// end has the voice forget what is wrong with this client, which is closed, and hear no more of it: the
// library may still tell of a connection.
func (t *troubles) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.voice.leave(t)
}

// note remembers err and logs it, unless it goes without saying. That a client is closed is no trouble: what still asks it
// ends too.
func (t *troubles) note(what trouble, err error) {
	if errors.Is(err, kgo.ErrClientClosed) {
		return
	}
	t.mu.Lock()
	t.open[what] = err
	say := !t.closed && t.voice.note(t, what, err)
	t.mu.Unlock()
	if say {
		t.log.Warn("kafka: trouble, trying again until it heals", "kind", troubleNames[what.kind], "about", what.about, "err", err)
	}
}

// healed forgets a trouble.
func (t *troubles) healed(what trouble) {
	t.mu.Lock()
	delete(t.open, what)
	say := t.voice.healed(t, what)
	t.mu.Unlock()
	if say {
		t.log.Info("kafka: trouble healed", "kind", troubleNames[what.kind], "about", what.about)
	}
}

// worst returns the most telling trouble of the kinds up to last, nil if there is none.
func (t *troubles) worst(last int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found error
	var at trouble
	for what, err := range t.open {
		if what.kind > last {
			continue
		}
		if found == nil || what.kind < at.kind || what.kind == at.kind && what.about < at.about {
			at, found = what, err
		}
	}
	return found
}

package kafka

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/streammanager"
)

// TransactionConfig says what is bound into transactions: the positions of a source, and what sinks write.
type TransactionConfig struct {
	ID     string        // transactional id: of this worker alone, and the same after a restart
	Source SourceConfig  //
	Sinks  []*SinkConfig // the first says how the client writes
}

// Transaction is a source and its sinks over one client, which writes in transactions. Their Open and Close go
// together, the sinks first.
type Transaction struct {
	id     string
	source *Source
	sinks  []*Sink

	session *kgo.GroupTransactSession
	begun   atomic.Pointer[time.Time] // when the transaction under way was
}

// NewTransaction checks cfg and opens nothing. A nil logger says nothing.
func NewTransaction(cfg TransactionConfig, logger *slog.Logger) (*Transaction, error) {
	if cfg.ID == "" {
		return nil, keyErrorf("transactional_id", "none given")
	}
	if len(cfg.Sinks) == 0 {
		return nil, errors.New("a transaction needs a sink")
	}
	t := &Transaction{id: cfg.ID}
	var err error
	if t.source, err = NewSource(cfg.Source, logger); err != nil {
		return nil, err
	}
	t.source.tx = t
	for i, c := range cfg.Sinks {
		s, err := NewSink(*c, logger)
		if err == nil {
			err = SameClient(&cfg.Source.Connection, &c.Connection)
		}
		if err == nil && i > 0 {
			err = SameWriter(&cfg.Sinks[0].Connection, &c.Connection)
		}
		if err != nil {
			return nil, err
		}
		s.tx, s.limits = t, s.newLimits(context.Background()) // until there is a client
		t.sinks = append(t.sinks, s)
	}
	if err := checkOpts(t.opts(context.Background())); err != nil {
		return nil, err
	}
	return t, nil
}

// SameClient says what keeps a sink from sharing the client of a source.
func SameClient(source, sink *Connection) error {
	const one = "with exactly_once source and sinks share one client: "
	sorted := func(brokers []string) []string { return slices.Sorted(slices.Values(brokers)) }
	switch {
	case !slices.Equal(sorted(source.Brokers), sorted(sink.Brokers)):
		return keyErrorf("brokers", one+"%q are others than the source's %q; write brokers once, under kafka: at the top", sink.Brokers, source.Brokers)
	case !reflect.DeepEqual(source.TLS, sink.TLS):
		return keyErrorf("tls", one+"this is other than the source's; write tls once, under kafka: at the top")
	case !reflect.DeepEqual(source.SASL, sink.SASL):
		return keyErrorf("sasl", one+"this is other than the source's; write sasl once, under kafka: at the top")
	}
	for _, name := range slices.Sorted(maps.Keys(sink.Options)) {
		o := find(name)
		if o == nil || len(o.Sides) < 2 {
			continue
		}
		if theirs := (&settings{given: source.Options}).text(name); theirs != sink.Options[name] {
			return keyErrorf(optionKey(name), one+"%q is other than the source's %q; write it once, under kafka.options", sink.Options[name], theirs)
		}
	}
	return nil
}

// SameWriter says what keeps an error sink from sharing the client of a sink.
func SameWriter(sink, errors *Connection) error {
	ours := &settings{given: sink.Options}
	for _, name := range slices.Sorted(maps.Keys(errors.Options)) {
		o := find(name)
		if o != nil && len(o.Sides) == 1 && o.Sides[0] == SinkSide && ours.text(name) != errors.Options[name] {
			return keyErrorf(optionKey(name), "with exactly_once one client writes results and error events: %q is other than the sink's %q; write it at the sink alone",
				errors.Options[name], ours.text(name))
		}
	}
	return nil
}

// Source returns the source; it implements streammanager.Transactor too.
func (t *Transaction) Source() streammanager.Source { return &transactSource{t.source, t} }

// Sink returns the n-th sink.
func (t *Transaction) Sink(n int) *Sink { return t.sinks[n] }

// Timeout is after how long the brokers abort a transaction.
func (t *Transaction) Timeout() time.Duration { return t.sinks[0].set.millis(TransactionTimeout) }

// opts returns the library's options of the one client.
func (t *Transaction) opts(ctx context.Context) []kgo.Opt {
	opts := append(t.source.opts(ctx), writeOpts(t.batch)...)
	opts = append(opts, t.sinks[0].set.ownOpts()...)
	for _, s := range t.sinks {
		opts = append(opts, kgo.WithHooks(s.limits))
	}
	return append(opts, kgo.TransactionalID(t.id))
}

// batch returns the size of a batch for topic, as the sink knows it that writes there.
func (t *Transaction) batch(topic string) int32 {
	for _, s := range t.sinks {
		if s.limits.knows(topic) {
			return s.limits.batch(topic)
		}
	}
	return t.sinks[0].limits.batch(topic)
}

// open makes the client.
func (t *Transaction) open(ctx context.Context) (*kgo.Client, error) {
	for _, s := range t.sinks {
		s.prepare(ctx)
	}
	session, err := kgo.NewGroupTransactSession(t.opts(ctx)...)
	if err != nil {
		return nil, err
	}
	t.session = session
	for _, s := range t.sinks {
		s.start(session.Client(), kadm.NewClient(session.Client()))
	}
	return session.Client(), nil
}

// takeOver has the brokers abort at once what a worker of the same id may have left open when it was killed, and not only
// when something is written: until then readers see nothing behind it, and where it had offsets in it the group waits for it.
// What the brokers refuse for good the first write is told too, and says.
func (t *Transaction) takeOver(ctx context.Context) {
	for {
		_, _, err := t.session.Client().ProducerID(ctx)
		var refused *kerr.Error
		if err == nil || errors.As(err, &refused) && !refused.Retriable || !pause(ctx, takeOverAgain) {
			return
		}
	}
}

// takeOverAgain is the pause before brokers that did not answer are asked again.
const takeOverAgain = time.Second

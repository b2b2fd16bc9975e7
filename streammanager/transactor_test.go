package streammanager_test

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/a0c75104/enricher/streammanager"
)

// memTx is a source with transactions over a memSource, and the sinks that write in them. What is seen is what was
// committed.
type memTx struct {
	*memSource
	t       *testing.T
	timeout time.Duration

	mu      sync.Mutex // guards all below
	begun   bool
	spoilt  bool // a record was refused
	polling bool
	pending []func()
	refuse  func(r *streammanager.Record) error
	hold    bool // sinks do not answer
	held    []func()
	fate    func(commit bool) (bool, error) // of an End; nil: as asked
	delay   time.Duration                   // of an End
	begins  int
	ends    []string
}

var _ streammanager.Transactor = (*memTx)(nil)

func (m *memTx) TransactionTimeout() time.Duration { return m.timeout }

func (m *memTx) Begin(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.begun {
		m.t.Error("a transaction was begun in another")
	}
	m.begun = true
	m.begins++
	return nil
}

func (m *memTx) End(ctx context.Context, commit bool, positions map[tp]streammanager.Position) (bool, error) {
	m.mu.Lock()
	delay, held := m.delay, m.held
	m.held = nil
	if m.polling {
		m.t.Error("a transaction ended during a poll")
	}
	if commit && len(held) > 0 {
		m.t.Error("a commit before all was answered")
	}
	m.mu.Unlock()
	for _, answer := range held {
		answer()
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return false, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memSource.mu.Lock()
	defer m.memSource.mu.Unlock()
	if commit && !m.begun {
		m.t.Error("a transaction was committed that was not begun")
	}
	kept := commit && !m.spoilt
	var err error
	if m.fate != nil && kept {
		kept, err = m.fate(commit)
	}
	offsets := map[tp]int64{}
	for at, pos := range positions {
		off := pos.Offset
		offsets[at] = off
		if _, ours := m.next[at]; !ours {
			kept = false
		}
		if off < m.committed[at] {
			m.t.Errorf("%v: position %d goes back behind %d", at, off, m.committed[at])
		}
	}
	if kept {
		for _, show := range m.pending {
			show()
		}
		maps.Copy(m.committed, offsets)
		m.ends = append(m.ends, "commit")
	} else {
		for at := range m.next { // as the Kafka client does
			m.next[at] = m.committed[at]
		}
		m.ends = append(m.ends, "abort")
	}
	m.begun, m.spoilt, m.pending = false, false, nil
	return kept, err
}

func (m *memTx) Commit(context.Context, map[tp]streammanager.Position) error {
	m.t.Error("positions were committed outside a transaction")
	return nil
}

func (m *memTx) Poll(ctx context.Context, limit int) (streammanager.Polled, error) {
	m.set(func() { m.polling = true })
	defer m.set(func() { m.polling = false })
	return m.memSource.Poll(ctx, limit)
}

func (m *memTx) set(do func()) { m.mu.Lock(); defer m.mu.Unlock(); do() }

// revoke takes partitions away; a transaction that is under way cannot be committed any more.
func (m *memTx) revoke(ctx context.Context, tps ...tp) {
	m.set(func() { m.spoilt = m.begun })
	m.memSource.revoke(ctx, tps...)
}

func (m *memTx) lose(at tp) {
	m.set(func() { m.spoilt = m.begun })
	m.memSource.lose(at)
}

func (m *memTx) ended() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.ends...)
}

// txSink writes in the transactions of tx; to holds what is seen.
type txSink struct {
	tx *memTx
	to *memSink
}

func (s *txSink) Open(context.Context) error          { return nil }
func (s *txSink) Close(context.Context) error         { return nil }
func (s *txSink) Check(r *streammanager.Record) error { return s.to.Check(r) }

func (s *txSink) Produce(_ context.Context, r *streammanager.Record, done func(error)) {
	m := s.tx
	m.mu.Lock()
	if !m.begun {
		m.t.Errorf("record %q was written outside a transaction", r.Value)
	}
	var err error
	if m.refuse != nil {
		err = m.refuse(r)
	}
	if err != nil {
		m.spoilt = true
	}
	rec := *r
	m.pending = append(m.pending, func() { s.to.mu.Lock(); s.to.got = append(s.to.got, rec); s.to.mu.Unlock() })
	if m.hold {
		m.held = append(m.held, func() { done(err) })
		m.mu.Unlock()
		return
	}
	m.mu.Unlock()
	done(err)
}

// newTxHarness is a stream over memory with transactions.
func newTxHarness(t *testing.T, bounded bool, timeout time.Duration, cfg streammanager.Config, shape func(*streammanager.Builder)) (*harness, *memTx) {
	t.Helper()
	h := &harness{src: newMemSource(bounded), sink: &memSink{}, errs: &memSink{}}
	m := &memTx{memSource: h.src, t: t, timeout: timeout}
	cfg.Name = "test"
	cfg.Logger = slog.New(slog.NewTextHandler(&h.log, nil))
	b := streammanager.New(cfg).From(m).To(&txSink{m, h.sink}).ErrorsTo(&txSink{m, h.errs}, nil)
	shape(b)
	var err error
	if h.stream, err = b.Build(); err != nil {
		t.Fatal(err)
	}
	return h, m
}

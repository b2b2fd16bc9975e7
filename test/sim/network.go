package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// state is how a network stands.
type state uint8

const (
	open   state = iota
	cut          // no connection can be made
	frozen       // nothing goes through, until it goes on where it stopped
	silent       // connections are made, what is sent is taken, and nothing is answered
)

// network is a way of one worker to the brokers.
type network struct {
	inner *kfake.VirtualNetwork

	mu    sync.Mutex // guards all below
	state state
	conns map[*conn]struct{}
	trap  *trap
}

// trap is sprung by the next request of a kind: before it is sent, or after.
type trap struct {
	key    int16
	before bool
	spring func() // must not block
}

type conn struct {
	net.Conn
	n *network

	at     time.Time     // of the last write; the client writes one request after the other
	writes int           // without a pause between them
	wait   time.Duration // when they are too many

	mu       sync.Mutex // guards what follows
	queued   [][]byte   // was written while nothing went through
	flushing bool       // queued is being sent
	closed   bool
	until    time.Time // deadline of reads
}

// atOnce is how many requests of a connection may take no time at all. A client that asks again at once,
// such as for a partition that has moved, would else stop virtual time.
const atOnce = 1000

// again is how often what stands still is looked at.
const again = 20 * time.Millisecond

var errCut = errors.New("the network is cut")

// Write sends, and takes a while where too much is sent in one instant. While nothing goes through, what is sent is
// taken all the same, as a kernel does.
func (c *conn) Write(b []byte) (int, error) {
	c.slow()
	spring := c.n.springs(b)
	if spring != nil && spring.before {
		spring.spring()
		return 0, errCut
	}
	if c.queues(b) {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	if spring != nil {
		spring.spring()
	}
	return n, err
}

// slow takes a while where too much is sent at once, and longer each time that it goes on.
func (c *conn) slow() {
	now := time.Now()
	if now.Sub(c.at) > time.Millisecond {
		c.writes, c.wait = 0, time.Millisecond
	}
	if c.writes++; c.writes > atOnce {
		time.Sleep(c.wait)
		c.writes, c.wait = atOnce/2, min(2*c.wait, 100*time.Millisecond)
	}
	c.at = time.Now()
}

// queues keeps what cannot be sent now, or must not overtake what could not be sent before.
func (c *conn) queues(b []byte) bool {
	keeps := c.n.keeps()
	c.mu.Lock()
	defer c.mu.Unlock()
	if keeps || c.flushing {
		c.queued = append(c.queued, append([]byte(nil), b...))
		return true
	}
	return false
}

// springs returns the trap that a request springs.
func (n *network) springs(b []byte) *trap {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.trap
	if t == nil || len(b) < 6 || int16(binary.BigEndian.Uint16(b[4:])) != t.key {
		return nil
	}
	n.trap = nil
	return t
}

// arm sets a trap, nil for none, and returns the one that was set.
func (n *network) arm(t *trap) *trap {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.trap
	n.trap = t
	return before
}

func (n *network) keeps() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state == frozen || n.state == silent
}

// Read hands on what came once something goes through.
func (c *conn) Read(b []byte) (int, error) {
	got, err := c.Conn.Read(b)
	for c.n.keeps() {
		c.mu.Lock()
		closed, late := c.closed, !c.until.IsZero() && time.Now().After(c.until)
		c.mu.Unlock()
		switch {
		case closed:
			return 0, errCut
		case late:
			return 0, os.ErrDeadlineExceeded
		}
		time.Sleep(again)
	}
	return got, err
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.until = t
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	c.until = t
	c.mu.Unlock()
	return c.Conn.SetDeadline(t)
}

// Close forgets the connection too.
func (c *conn) Close() error {
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
	return c.hangUp()
}

func (c *conn) hangUp() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	return c.Conn.Close()
}

// flush sends what was written while nothing went through.
func (c *conn) flush() {
	for {
		c.mu.Lock()
		queued := c.queued
		c.queued, c.flushing = nil, len(queued) > 0
		c.mu.Unlock()
		if len(queued) == 0 {
			return
		}
		for _, b := range queued {
			if _, err := c.Conn.Write(b); err != nil {
				return
			}
		}
	}
}

// Dial connects to a broker unless the network is cut.
func (n *network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for n.is(frozen) && ctx.Err() == nil {
		pause(ctx, again)
	}
	if n.is(cut) {
		// It takes a while to find out, else a client that tries again at once would stop virtual time.
		pause(ctx, again)
		return nil, errCut
	}
	inner, err := n.inner.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, n: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == cut {
		_ = inner.Close()
		return nil, errCut
	}
	if n.conns == nil {
		n.conns = map[*conn]struct{}{}
	}
	n.conns[c] = struct{}{}
	return c, nil
}

func (n *network) is(s state) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state == s
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// drop closes all connections.
func (n *network) drop() {
	n.mu.Lock()
	conns := n.conns
	n.conns = nil
	n.mu.Unlock()
	for c := range conns {
		_ = c.hangUp()
	}
}

// cut closes all connections and lets none be made; open ends that.
func (n *network) cut() {
	n.mu.Lock()
	n.state = cut
	n.mu.Unlock()
	n.drop()
}

// freeze lets nothing through until open, which sends all on.
func (n *network) freeze() { n.set(frozen) }

// hush takes all and answers nothing until open, which closes the connections.
func (n *network) hush() { n.set(silent) }

func (n *network) set(s state) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == open {
		n.state = s
	}
}

// open ends what cut, freeze and hush began.
func (n *network) open() {
	n.mu.Lock()
	before := n.state
	conns := make([]*conn, 0, len(n.conns))
	for c := range n.conns {
		conns = append(conns, c)
		c.mu.Lock()
		c.flushing = true
		c.mu.Unlock()
	}
	n.state = open
	n.mu.Unlock()
	if before == silent {
		n.drop()
		return
	}
	for _, c := range conns {
		c.flush()
	}
}

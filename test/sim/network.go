package sim

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// network is one worker's way to the brokers. It can be cut.
type network struct {
	inner *kfake.VirtualNetwork

	mu    sync.Mutex // guards all below
	down  bool
	conns map[*conn]struct{}
}

type conn struct {
	net.Conn
	n *network

	at     time.Time // of the last write; the client writes one request after the other
	writes int       // at that instant
}

// atOnce is how many requests of a connection may take no time at all. A client that asks again at once,
// such as for a partition that has moved, would else stop virtual time.
const atOnce = 1000

// Write sends, and takes a while where too much is sent in one instant.
func (c *conn) Write(b []byte) (int, error) {
	if now := time.Now(); now.Equal(c.at) {
		c.writes++
	} else {
		c.at, c.writes = now, 0
	}
	if c.writes > atOnce {
		time.Sleep(time.Millisecond)
	}
	return c.Conn.Write(b)
}

// Close forgets the connection too.
func (c *conn) Close() error {
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
	return c.Conn.Close()
}

var errCut = errors.New("the network is cut")

// Dial connects to a broker unless the network is cut.
func (n *network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	down := n.down
	n.mu.Unlock()
	if down {
		// It takes a while to find out, else a client that tries again at once would stop virtual time.
		t := time.NewTimer(20 * time.Millisecond)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		return nil, errCut
	}
	inner, err := n.inner.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, n: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		_ = inner.Close()
		return nil, errCut
	}
	if n.conns == nil {
		n.conns = map[*conn]struct{}{}
	}
	n.conns[c] = struct{}{}
	return c, nil
}

// drop closes all connections.
func (n *network) drop() {
	n.mu.Lock()
	conns := n.conns
	n.conns = nil
	n.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
}

// cut closes all connections and lets none be made; heal ends that.
func (n *network) cut() {
	n.mu.Lock()
	n.down = true
	n.mu.Unlock()
	n.drop()
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

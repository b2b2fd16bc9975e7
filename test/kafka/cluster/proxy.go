//go:build unix

package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Proxy carries the connections of workers to a node, and can be a bad network. Its methods may be called from any
// goroutine.
type Proxy struct {
	listener net.Listener
	to       string
	ctx      context.Context // ends with the proxy
	end      context.CancelFunc
	done     sync.WaitGroup

	mu    sync.Mutex        // guards what follows
	moves chan struct{}     // closed unless it is stalled
	open  map[net.Conn]bool // both ends of each connection
}

func newProxy(to string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a proxy: %w", err)
	}
	p := &Proxy{listener: listener, to: to, moves: make(chan struct{}), open: map[net.Conn]bool{}}
	p.ctx, p.end = context.WithCancel(context.Background())
	close(p.moves)
	p.done.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Stall stops carrying bytes, both ways, until Heal. Connections stay open, and new ones are taken: to both
// sides the other looks alive and silent.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.moves:
		p.moves = make(chan struct{})
	default: // it is stalled
	}
}

// Cut closes all connections now. New ones are taken.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

// Heal ends Stall. What was stalled goes on where it was.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.moves:
	default:
		close(p.moves)
	}
}

// close ends it. It waits until nothing is left.
func (p *Proxy) close() {
	p.end()
	_ = p.listener.Close()
	p.Cut()
	p.done.Wait()
}

func (p *Proxy) cut() {
	for conn := range p.open {
		_ = conn.Close()
	}
	clear(p.open)
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // it was closed
		}
		p.done.Go(func() { p.serve(conn) })
	}
}

// serve carries one connection until one side ends it.
func (p *Proxy) serve(conn net.Conn) {
	defer conn.Close()
	if !p.pass() || !p.keep(conn) {
		return
	}
	node, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", p.to)
	if err != nil {
		p.forget(conn)
		return
	}
	defer node.Close()
	if !p.keep(node) {
		p.forget(conn)
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.carry(node, conn) })
	both.Go(func() { p.carry(conn, node) })
	both.Wait()
	p.forget(conn, node)
}

// keep notes an open connection, unless the proxy ends.
func (p *Proxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.open[conn] = true
	return true
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.open, conn)
	}
}

// carry copies from one side to the other. When it ends, so does the other direction.
func (p *Proxy) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			if !p.pass() {
				return
			}
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while nothing may move. It reports whether the proxy goes on.
func (p *Proxy) pass() bool {
	p.mu.Lock()
	moves := p.moves
	p.mu.Unlock()
	select {
	case <-moves:
		return p.ctx.Err() == nil
	case <-p.ctx.Done():
		return false
	}
}

//go:build unix

package job

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// door is a listener that can be shut, so that connections are refused, and opened again at the same address.
type door struct {
	addr net.Addr

	mu       sync.Mutex // guards what follows
	listener net.Listener
	changed  chan struct{} // closed when listener or closed has changed
	closed   bool
}

// openDoor listens on loopback, on a port that the kernel gives to no client: none takes it while the door is shut.
func openDoor() (*door, error) {
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(10_000))); err == nil {
			return &door{addr: l.Addr(), listener: l, changed: make(chan struct{})}, nil
		}
	}
	return nil, fmt.Errorf("looking for a free port: none of a hundred is: %w", err)
}

// Accept implements net.Listener. While the door is shut it waits.
func (d *door) Accept() (net.Conn, error) {
	for {
		d.mu.Lock()
		l, changed, closed := d.listener, d.changed, d.closed
		d.mu.Unlock()
		if closed {
			return nil, net.ErrClosed
		}
		if l == nil {
			<-changed
			continue
		}
		conn, err := l.Accept()
		if err == nil || !errors.Is(err, net.ErrClosed) {
			return conn, err
		}
	}
}

// Addr implements net.Listener.
func (d *door) Addr() net.Addr { return d.addr }

// Close implements net.Listener.
func (d *door) Close() error {
	d.set(nil, true)
	return nil
}

func (d *door) shut() { d.set(nil, false) }

func (d *door) open() error {
	l, err := net.Listen("tcp", d.addr.String())
	if err != nil {
		return fmt.Errorf("opening the API again: %w", err)
	}
	d.set(l, false)
	return nil
}

func (d *door) set(l net.Listener, closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listener != nil {
		_ = d.listener.Close()
	}
	d.listener, d.closed = l, d.closed || closed
	close(d.changed)
	d.changed = make(chan struct{})
}

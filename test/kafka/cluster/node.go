//go:build unix

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/test/internal/process"
)

// Node is one of a cluster. Each is broker and controller. Its methods are for one goroutine at a time.
type Node struct {
	// ID is its node id, from 1.
	ID int
	// Addr is where workers reach it: itself, or its proxy.
	Addr string
	// Direct is where tests do: plain, and without a proxy.
	Direct string
	// Proxy stands before it; nil unless Options.Proxy.
	Proxy *Proxy

	behind     string // what it listens on for workers
	controller string
	install    *install
	dir        string
	config     string // file
	tls        properties
	flags      []string // for Java
	starts     int
	running    *process.Process
}

// Start starts the node after Stop or Kill, and waits until it serves.
func (n *Node) Start(ctx context.Context) error {
	if err := n.launch(); err != nil {
		return err
	}
	return n.ready(ctx)
}

// launch starts the process, in the background.
func (n *Node) launch() error {
	if n.running != nil && n.running.Running() {
		return fmt.Errorf("starting node %d: it runs", n.ID)
	}
	n.starts++
	log, err := os.Create(n.logFile())
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{}, n.flags...)
	if n.install.archive != "" {
		args = append(args, "-XX:SharedArchiveFile="+n.install.archive)
	}
	cmd := n.install.java(context.Background(), append(args, "kafka.Kafka", n.config)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, n.dir
	n.running, err = process.Start(cmd)
	return err
}

func (n *Node) logFile() string { return filepath.Join(n.dir, fmt.Sprintf("node-%d.log", n.starts)) }

// ready waits until the node says so in its log and answers.
func (n *Node) ready(ctx context.Context) error {
	err := until(ctx, func() error {
		if !n.running.Running() {
			return errEnded
		}
		text, err := os.ReadFile(n.logFile())
		if err == nil && !bytes.Contains(text, []byte("Kafka Server started")) {
			err = errors.New("it does not say that it has started")
		}
		return err
	})
	if err == nil {
		err = until(ctx, func() error { return n.lists(ctx, 1) })
	}
	if err != nil {
		return fmt.Errorf("starting node %d: %w; its log ends:\n%s", n.ID, err, n.Tail(40))
	}
	return nil
}

var errEnded = errors.New("it has ended")

// until calls f until it returns nil, ctx ends, or the process has ended.
func until(ctx context.Context, f func() error) error {
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// lists returns nil if the node knows that many brokers, itself among them.
func (n *Node) lists(ctx context.Context, brokers int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(n.Direct), kgo.RequestRetries(0), kgo.DialTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		return err
	}
	own := false
	for _, b := range answer.Brokers {
		own = own || int(b.NodeID) == n.ID
	}
	if !own || len(answer.Brokers) < brokers {
		return fmt.Errorf("node %d lists %d brokers", n.ID, len(answer.Brokers))
	}
	return nil
}

// Stop ends the node in good order: it hands over what it leads first.
func (n *Node) Stop(ctx context.Context) error {
	n.running.Terminate()
	select {
	case <-n.running.Ended():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping node %d: %w; its log ends:\n%s", n.ID, ctx.Err(), n.Tail(40))
	}
}

// Kill ends the node as kill -9 does.
func (n *Node) Kill() { n.running.Kill() }

// Pause stops the node's process where it is: it keeps its connections and answers nothing.
func (n *Node) Pause() { n.running.Pause() }

// Continue lets a paused node go on.
func (n *Node) Continue() { n.running.Continue() }

// Restart stops the node in good order, if it runs, and starts it again.
func (n *Node) Restart(ctx context.Context) error {
	if n.running.Running() {
		if err := n.Stop(ctx); err != nil {
			return err
		}
	}
	return n.Start(ctx)
}

// Running reports whether its process is there, paused or not.
func (n *Node) Running() bool { return n.running != nil && n.running.Running() }

// Tail returns the last lines of its log since it was started last.
func (n *Node) Tail(lines int) string {
	text, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error()
	}
	for at := len(text) - 1; at > 0; at-- {
		if text[at-1] == '\n' {
			if lines--; lines == 0 {
				return string(text[at:])
			}
		}
	}
	return string(text)
}

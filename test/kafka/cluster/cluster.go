//go:build unix

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is one node or three. Close ends it.
type Cluster struct {
	// Nodes are its nodes; node i has the id i+1.
	Nodes []*Node
	// Client and Admin come in by the direct door. Close closes them.
	Client *kgo.Client
	Admin  *kadm.Client

	options Options
	dir     string
	ports   []*os.File // locks of the ports in use
	ca      *authority
}

// Start starts a cluster that ends with the test. It skips or fails the test as Need does.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	Need(t)
	c, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Tails(40))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// New starts a cluster and waits until it serves; two minutes at most, and the time to fetch the jars.
func New(ctx context.Context, o Options) (*Cluster, error) {
	in, err := installed()
	if err != nil {
		return nil, fmt.Errorf("preparing brokers: %w", err)
	}
	c, err := newCluster(in, o)
	if err != nil {
		return nil, fmt.Errorf("preparing brokers: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// newCluster makes the folders and files of a cluster, and starts nothing but its proxies.
func newCluster(in *install, o Options) (*Cluster, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Nodes = max(o.Nodes, 1)
	dir, err := os.MkdirTemp("", "kafka-cluster")
	if err != nil {
		return nil, err
	}
	c := &Cluster{options: o, dir: dir}
	if err := c.prepare(in); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) prepare(in *install) error {
	var voters []string
	var err error
	if c.options.Security.TLS {
		if c.ca, err = newAuthority(c.dir); err != nil {
			return err
		}
	}
	for i := range c.options.Nodes {
		n := &Node{ID: i + 1, install: in, dir: filepath.Join(c.dir, fmt.Sprintf("k%d", i+1))}
		c.Nodes = append(c.Nodes, n)
		for _, port := range []*string{&n.behind, &n.Direct, &n.controller} {
			if *port, err = c.freePort(); err != nil {
				return err
			}
		}
		n.Addr = n.behind
		if c.options.Proxy {
			if n.Proxy, err = newProxy(n.behind); err != nil {
				return err
			}
			n.Addr = n.Proxy.Addr()
		}
		voters = append(voters, fmt.Sprintf("%d@%s", n.ID, n.controller))
	}
	for _, n := range c.Nodes {
		if err := c.prepareNode(n, strings.Join(voters, ",")); err != nil {
			return fmt.Errorf("preparing node %d: %w", n.ID, err)
		}
	}
	return nil
}

func (c *Cluster) prepareNode(n *Node, voters string) error {
	data := filepath.Join(n.dir, "data")
	if err := os.CopyFS(data, os.DirFS(n.install.formatted)); err != nil {
		return err
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	meta := properties{
		"version": "1", "node.id": fmt.Sprint(n.ID), "cluster.id": clusterID,
		"directory.id": base64.RawURLEncoding.EncodeToString(id),
	}
	if err := os.WriteFile(filepath.Join(data, "meta.properties"), []byte(meta.String()), 0o644); err != nil {
		return err
	}
	if c.ca != nil {
		var err error
		if n.tls, err = c.ca.serverProperties(n, c.options.Security.ClientCerts); err != nil {
			return err
		}
	}
	n.config = filepath.Join(n.dir, "server.properties")
	return os.WriteFile(n.config, []byte(propertiesOf(c.options, n, voters, data).String()), 0o644)
}

// freePort returns an address that nobody listens on. It is below those that the kernel gives to clients, so that
// none of them takes it while the node is down, and locked against other test processes.
func (c *Cluster) freePort() (string, error) {
	locks := filepath.Join(os.TempDir(), "enricher-test-ports")
	if err := os.MkdirAll(locks, 0o777); err != nil {
		return "", err
	}
	for range 100 {
		port := 20_000 + mathrand.IntN(12_000)
		lock, err := os.OpenFile(filepath.Join(locks, fmt.Sprint(port)), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			return "", err
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			if l, err := net.Listen("tcp", addr); err == nil {
				_ = l.Close()
				c.ports = append(c.ports, lock)
				return addr, nil
			}
		}
		_ = lock.Close()
	}
	return "", errors.New("looking for a free port: none of a hundred is")
}

// start starts all nodes at once and waits until each knows all of them.
func (c *Cluster) start(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := n.launch(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		if err := n.ready(ctx); err != nil {
			return err
		}
	}
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	var err error
	c.Client, err = kgo.NewClient(kgo.SeedBrokers(c.Direct()...), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProduceRequestTimeout(3*time.Second), kgo.RequestTimeoutOverhead(3*time.Second)) // a paused node answers nothing
	if err != nil {
		return err
	}
	c.Admin = kadm.NewClient(c.Client)
	return c.setUsers(ctx)
}

// WaitReady waits until every node knows all nodes.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := until(ctx, func() error { return n.lists(ctx, len(c.Nodes)) }); err != nil {
			return fmt.Errorf("waiting for the cluster: %w\n%s", err, c.Tails(20))
		}
	}
	return nil
}

// Brokers returns where workers come in.
func (c *Cluster) Brokers() []string {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr)
	}
	return addrs
}

// Direct returns where tests come in.
func (c *Cluster) Direct() []string {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Direct)
	}
	return addrs
}

// Tails returns the last lines that each node logged.
func (c *Cluster) Tails(lines int) string {
	var text strings.Builder
	for _, n := range c.Nodes {
		fmt.Fprintf(&text, "--- node %d logged:\n%s", n.ID, n.Tail(lines))
	}
	return text.String()
}

// Close kills the nodes and removes what they wrote.
func (c *Cluster) Close() error {
	if c.Client != nil {
		c.Client.Close()
	}
	for _, n := range c.Nodes {
		if n.running != nil {
			n.running.Kill()
		}
		if n.Proxy != nil {
			n.Proxy.close()
		}
	}
	for _, lock := range c.ports {
		_ = lock.Close()
	}
	return os.RemoveAll(c.dir)
}

// tryOut does what every test does, so that the classes for it are loaded.
func (c *Cluster) tryOut(ctx context.Context) error {
	if _, err := c.Admin.CreateTopic(ctx, 1, 1, nil, "try"); err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Direct()...), kgo.ConsumeTopics("try"), kgo.ConsumerGroup("try"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "try", Value: []byte("try")}).FirstErr(); err != nil {
		return err
	}
	if err := client.PollFetches(ctx).Err(); err != nil {
		return err
	}
	return client.CommitUncommittedOffsets(ctx)
}

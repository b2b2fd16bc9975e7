//go:build unix

package cluster_test

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/test/kafka/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func makeTopic(t *testing.T, c *cluster.Cluster, topic string) {
	t.Helper()
	must(t, c.MakeTopic(t.Context(), topic, 2, nil))
}

func produce(ctx context.Context, client *kgo.Client, records ...*kgo.Record) error {
	return client.ProduceSync(ctx, records...).FirstErr()
}

// within bounds a request that may be answered by nobody.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestOneNodeKeepsWhatItAcknowledgedAcrossAKill(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Proxy: true})
	makeTopic(t, c, "a")
	binary := []byte("two\nlines and \x00\xff")
	must(t, produce(t.Context(), c.Client,
		&kgo.Record{Topic: "a", Key: []byte("k"), Value: binary}, &kgo.Record{Topic: "a", Key: []byte("k"), Value: nil},
		&kgo.Record{Topic: "a", Value: []byte{}}))
	node := c.Nodes[0]
	node.Kill()
	must(t, node.Start(t.Context()))
	got, err := c.ReadBack(t.Context(), "a", cluster.ReadOptions{Committed: true})
	must(t, err)
	if len(got) != 3 {
		t.Fatalf("read %d records back, want 3: %v", len(got), got)
	}
	for _, r := range got {
		if string(r.Key) == "k" && r.Offset == 0 && !bytes.Equal(r.Value, binary) ||
			string(r.Key) == "k" && r.Offset == 1 && r.Value != nil ||
			r.Key == nil && (r.Value == nil || len(r.Value) > 0) {
			t.Errorf("read %+v back, which is not what was written", r)
		}
	}
	proxied(t, c)
}

// proxied checks the proxy of a node.
func proxied(t *testing.T, c *cluster.Cluster) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers()...))
	must(t, err)
	defer client.Close()
	record := func() *kgo.Record { return &kgo.Record{Topic: "a", Value: []byte("by the proxy")} }
	must(t, produce(t.Context(), client, record()))
	proxy := c.Nodes[0].Proxy
	proxy.Stall()
	held := make(chan error, 1)
	client.Produce(t.Context(), record(), func(_ *kgo.Record, err error) { held <- err })
	select {
	case err := <-held:
		t.Errorf("a stalled proxy let an answer through: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	proxy.Heal()
	must(t, <-held)
	proxy.Cut()
	must(t, produce(t.Context(), client, record()))
}

func TestThreeNodesServeWhileOneIsDownOrPaused(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Nodes: 3})
	makeTopic(t, c, "a")
	for i, n := range c.Nodes {
		must(t, produce(t.Context(), c.Client, &kgo.Record{Topic: "a", Value: []byte("before")}))
		switch i {
		case 0:
			n.Kill()
			must(t, produce(t.Context(), c.Client, &kgo.Record{Topic: "a", Value: []byte("one is down")}))
			must(t, n.Start(t.Context()))
		case 1:
			n.Pause()
			must(t, produce(t.Context(), c.Client, &kgo.Record{Topic: "a", Value: []byte("one is paused")}))
			n.Continue()
		case 2:
			must(t, n.Restart(t.Context()))
		}
		must(t, c.WaitReady(t.Context()))
	}
	got, err := c.ReadBack(t.Context(), "a", cluster.ReadOptions{})
	must(t, err)
	if len(got) != 5 {
		t.Errorf("read %d records back, want 5", len(got))
	}
}

func TestASecureNodeAsksForTheLoginAndTheRights(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Security: cluster.Security{
		TLS: true, ACLs: true, Users: map[string]string{"admin": "all", "worker": "some"}, Reauth: 3 * time.Second,
	}})
	makeTopic(t, c, "a")
	must(t, produce(t.Context(), c.Client, &kgo.Record{Topic: "a", Value: []byte("v")}))
	got, err := c.ReadBack(t.Context(), "a", cluster.ReadOptions{User: "admin"})
	must(t, err)
	if len(got) != 1 {
		t.Errorf("the admin read %d records, want 1", len(got))
	}
	for _, user := range []string{"worker", "-"} {
		if got, err := c.ReadBack(within(t, 15*time.Second), "a", cluster.ReadOptions{User: user}); err == nil {
			t.Errorf("user %q, who has no right, read %v", user, got)
		}
	}
	if _, err := os.Stat(c.CAFile()); err != nil {
		t.Error(err)
	}
}

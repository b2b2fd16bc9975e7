//go:build unix

package mainjob_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// broker is a Kafka broker in its own process, and the test's own client of it.
type broker struct {
	addr   string
	t      *testing.T
	client *kgo.Client
	admin  *kadm.Client

	mu      sync.Mutex // guards the conversation over in and answers
	in      io.WriteCloser
	answers *bufio.Reader
}

// startBroker starts a broker with topics of so many partitions. It ends with the test.
func startBroker(t *testing.T, topics map[string]int) *broker {
	t.Helper()
	var args []string
	for name, partitions := range topics {
		args = append(args, "-topic", fmt.Sprintf("%s:%d", name, partitions))
	}
	cmd := exec.Command(brokerBinary, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	b := &broker{t: t, in: in, answers: bufio.NewReader(out)}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := b.answers.ReadString('\n')
	if err != nil {
		t.Fatalf("reading the broker's address: %v", err)
	}
	b.addr = strings.TrimSpace(line)
	b.client, err = kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	must(t, err)
	t.Cleanup(b.client.Close)
	b.admin = kadm.NewClient(b.client)
	return b
}

// say gives the broker a command and waits until it is done.
func (b *broker) say(command string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := fmt.Fprintln(b.in, command); err != nil {
		return fmt.Errorf("telling the broker %q: %w", command, err)
	}
	answer, err := b.answers.ReadString('\n')
	if err == nil && answer != "ok\n" {
		err = fmt.Errorf("answered %q", answer)
	}
	if err != nil {
		return fmt.Errorf("telling the broker %q: %w", command, err)
	}
	return nil
}

// stopProduce holds what is produced to topic, without an answer, until resumeProduce.
func (b *broker) stopProduce(topic string) {
	b.t.Helper()
	must(b.t, b.say("produce stop "+topic))
}

func (b *broker) resumeProduce(topic string) {
	b.t.Helper()
	must(b.t, b.say("produce go "+topic))
}

// ends returns the log end offset of each partition of topic.
func ends(t *testing.T, b *broker, topic string) map[int32]int64 {
	t.Helper()
	listed, err := b.admin.ListEndOffsets(t.Context(), topic)
	must(t, err)
	must(t, listed.Error())
	offsets := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { offsets[o.Partition] = o.Offset })
	return offsets
}

// count returns how many records topic holds.
func count(t *testing.T, b *broker, topic string) int {
	t.Helper()
	return int(sum(ends(t, b, topic)))
}

// committed returns the offsets that group has committed for topic. A partition without one is left out.
func committed(t *testing.T, b *broker, group, topic string) map[int32]int64 {
	t.Helper()
	offsets := map[int32]int64{}
	fetched, err := b.admin.FetchOffsets(t.Context(), group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return offsets // nobody has joined yet
	}
	must(t, err)
	must(t, fetched.Error())
	for partition, o := range fetched[topic] {
		if o.At >= 0 {
			offsets[partition] = o.At
		}
	}
	return offsets
}

// idle reports whether group has committed everything that topic holds.
func idle(t *testing.T, b *broker, group, topic string) bool {
	t.Helper()
	return sum(committed(t, b, group, topic)) == sum(ends(t, b, topic))
}

// owners returns how many members of the group have partitions.
func owners(t *testing.T, b *broker) int {
	t.Helper()
	described, err := b.admin.DescribeGroups(t.Context(), group)
	must(t, err)
	n := 0
	for _, m := range described[group].Members {
		if assigned, ok := m.Assigned.AsConsumer(); ok && len(assigned.Topics) > 0 {
			n++
		}
	}
	return n
}

func sum(offsets map[int32]int64) int64 {
	var n int64
	for _, o := range offsets {
		n += o
	}
	return n
}

// readAll returns what topic holds now, each partition in order.
func readAll(t *testing.T, b *broker, topic string) []*kgo.Record {
	t.Helper()
	until := ends(t, b, topic)
	starts := map[int32]kgo.Offset{}
	missing := 0
	for partition, end := range until {
		starts[partition] = kgo.NewOffset().AtStart()
		missing += int(end)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}))
	must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	records := make([]*kgo.Record, 0, missing)
	for missing > 0 {
		fetches := client.PollFetches(ctx)
		must(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < until[r.Partition] {
				records = append(records, r)
				missing--
			}
		})
	}
	return records
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

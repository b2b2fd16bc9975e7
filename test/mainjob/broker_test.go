//go:build unix

package mainjob_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
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
	offsets, err := job.Ends(t.Context(), b.admin, topic)
	must(t, err)
	return offsets
}

// count returns how many records topic holds.
func count(t *testing.T, b *broker, topic string) int {
	t.Helper()
	return int(job.Sum(ends(t, b, topic)))
}

// committed returns the offsets that group has committed for topic. A partition without one is left out.
func committed(t *testing.T, b *broker, group, topic string) map[int32]int64 {
	t.Helper()
	offsets, err := job.Committed(t.Context(), b.admin, group, topic)
	must(t, err)
	return offsets
}

// idle reports whether group has committed everything that topic holds.
func idle(t *testing.T, b *broker, group, topic string) bool {
	t.Helper()
	done, err := job.Idle(t.Context(), b.admin, group, topic)
	must(t, err)
	return done
}

// owners returns how many members of the group have partitions.
func owners(t *testing.T, b *broker) int {
	t.Helper()
	n, err := job.Owners(t.Context(), b.admin, group)
	must(t, err)
	return n
}

// load writes n events of that many keys to the input topic: real events of about 1.5 kB that say their
// id, their key and its sequence. Keys are drawn at random, and one in ten follows itself at once.
func load(t *testing.T, b *broker, n, keys int) job.Loaded {
	t.Helper()
	m := job.NewMaker(t, uint64(n), 0)
	return m.Load(t, b.client, inputTopic, n, func(int) int { return m.AnyOf(keys) }, 0)
}

// loadMore writes n events to the input topic that are like those of load, with ids from first, keys as
// keyOf says and pad more bytes each.
func loadMore(t *testing.T, b *broker, first, n int, keyOf func(i int) int, pad int) job.Loaded {
	t.Helper()
	return job.NewMaker(t, uint64(n)+1, first).Load(t, b.client, inputTopic, n, keyOf, pad)
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
	job.Must(t, err)
}

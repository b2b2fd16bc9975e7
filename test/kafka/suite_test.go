//go:build unix

package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// suite is a job under test on topics of its own, and its books.
type suite struct {
	t     *testing.T
	c     *cluster.Cluster // of the input
	sink  *cluster.Cluster // of output and errors; c unless setup says otherwise
	api   *job.API
	setup setup
	began time.Time

	// Names of its own.
	input, output, errors, group string

	workers []*worker // all that were started
	feeding *feed
	rounds  int
	stops   []time.Duration // how long workers took that were asked to end
	faults  []*fault

	gone  map[int]bool    // events that the input no longer had when they could have been read
	again bounds          // how often pipelines are started again, of all workers together
	until map[int32]int64 // where a bounded read ends; nil: nowhere

	mu       sync.Mutex // guards what follows
	events   job.Loaded
	doomed   map[int]doomed // of them, those that are to fail
	uncalled int            // of these, those that fail before the API is called
	passed   int            // events that were gone before a worker that runs came to them, as it has said and counted
}

// setup says what a suite works with. Zero values have defaults.
type setup struct {
	partitions int           // of input and output; 8
	keys       int           // 500
	delay      time.Duration // of a call; 10ms
	backlog    int           // events that are written and not yet answered, at most; 2000
	limit      int           // limits.in_flight_events; 500
	file       string        // pipeline file with the marks of suiteFile; suiteFile
	connection string        // text under kafka:; that of the cluster
	set        []string      // overrides for every worker

	configs map[string]string // of the input

	sink   *cluster.Cluster    // of output and errors; that of the input
	size   func(event int) int // bytes that an event has beside its 1.5 kB; none
	codec  string              // compression.type of the input; snappy
	fails  bool                // one in oneFails events fails, in all ways of fates; not where the API has troubles of its own
	same   bool                // what events have beside their 1.5 kB is easily compressed
	sample time.Duration       // between two looks at a worker; 25ms

	fated func(id int) *fate // how an event is to fail in a file that sees to it, nil where it is not; as fails says
	as    string             // how the report tells it from another suite of its test
}

// suiteFile is the pipeline of a suite. Marks between % are filled in.
const suiteFile = `
name: %GROUP%
kafka: %KAFKA%
source:
  kafka:
    topics: [%INPUT%]
    options: {session.timeout.ms: 1500, heartbeat.interval.ms: 250, metadata.max.age.ms: 5000}
partition_by: [.wiki_id, .page.page_id]
workers: 16
commit_interval: 200ms
shutdown_timeout: 15s
limits: {in_flight_events: %LIMIT%}
process:
  - name: content
    http:
      url: %API%/page/\(.page.page_id)?id=\(.load.id)
      into: .content
  - jq: .load.owner = "%WORKER%"
sink:
  kafka: {topic: %OUTPUT%}
error_sink:
  kafka: {topic: %ERRORS%}
gateway: {listen: "127.0.0.1:0"}
`

var suites atomic.Int64

// newSuite makes topics and an API for a suite on c.
func newSuite(t *testing.T, c *cluster.Cluster, s setup) *suite {
	t.Helper()
	s.partitions, s.keys, s.backlog, s.limit = or(s.partitions, 8), or(s.keys, 500), or(s.backlog, 2000), or(s.limit, 500)
	s.delay, s.file, s.connection = or(s.delay, 10*time.Millisecond), or(s.file, suiteFile), or(s.connection, c.Connection(""))
	if s.fails {
		s.file = failing(s.file)
	}
	s.sink, s.sample = or(s.sink, c), or(s.sample, 25*time.Millisecond)
	name := fmt.Sprintf("suite-%d", suites.Add(1))
	u := &suite{
		t: t, c: c, sink: s.sink, api: job.StartAPI(t, s.delay), setup: s, began: time.Now(),
		input: name + "-in", output: name + "-out", errors: name + "-errors", group: name,
		gone: map[int]bool{}, doomed: map[int]doomed{},
	}
	u.api.Refuse(func(id int) int {
		if f := u.fateOf(id); f != nil {
			return f.status
		}
		return 0
	})
	must(t, u.c.MakeTopic(t.Context(), u.input, s.partitions, s.configs))
	// Of what is written the broker's time is needed: when it was.
	must(t, u.sink.MakeTopic(t.Context(), u.output, s.partitions, map[string]string{"message.timestamp.type": "LogAppendTime"}))
	must(t, u.sink.MakeTopic(t.Context(), u.errors, 1, map[string]string{"message.timestamp.type": "LogAppendTime"}))
	return u
}

// or returns v, or instead where v is zero.
func or[T comparable](v, instead T) T {
	var zero T
	if v == zero {
		return instead
	}
	return v
}

// worker is one of a suite, and what is watched of it.
type worker struct {
	*job.Worker
	watch     *job.Watch
	crashed   bool // what it had in flight may be repeated
	crashedAt time.Time
	sleeps    []sleep
	once      bool // it works in transactions
	checked   bool // what it has counted was compared to what the broker has

	rested                bool               // it had nothing to do when it was stopped
	moved, commits, tried float64            // what it had counted then: events to the topic in between, commits that succeeded, and all
	failed                map[string]float64 // and error events, by type and function
}

// start starts a worker, with overrides.
func (u *suite) start(set ...string) *worker {
	u.t.Helper()
	set = append(slices.Clone(u.setup.set), set...)
	return u.launch(slices.Contains(set, "delivery=exactly_once"), job.WorkerConfig{File: u.file(), Set: set})
}

// file is the text of the pipeline file of a worker.
func (u *suite) file() string {
	return strings.NewReplacer("%SINK_BROKERS%", `["`+strings.Join(u.sink.Brokers(), `", "`)+`"]`,
		"%GROUP%", u.group, "%KAFKA%", u.setup.connection, "%INPUT%", u.input, "%OUTPUT%", u.output,
		"%ERRORS%", u.errors, "%API%", u.api.URL, "%LIMIT%", fmt.Sprint(u.setup.limit)).Replace(u.setup.file)
}

func (u *suite) launch(once bool, c job.WorkerConfig) *worker {
	u.t.Helper()
	c.Binary, c.Patience = enricherBinary, patience
	w := &worker{Worker: job.StartWorker(u.t, c), once: once}
	w.watch = job.NewWatch(w.Worker, u.setup.sample)
	u.workers = append(u.workers, w)
	u.t.Cleanup(func() {
		if !w.checked && !u.t.Failed() {
			u.t.Errorf("%s was started, and what it has counted was never compared to what the broker has: end with check or checkSettled", w.Name)
		}
	})
	return w
}

// crash kills a worker as kill -9 does.
func (u *suite) crash(w *worker) {
	u.t.Helper()
	w.Kill()
	w.crashed, w.crashedAt = true, time.Now()
}

// working waits until w has a part in the work.
func (u *suite) working(w *worker) {
	u.t.Helper()
	waitFor(u.t, w.Name+" has a part in the work", func() bool { return w.watch.Last().Emitted > 0 || !w.Running() })
}

// stop asks a worker to end, and holds it to its shutdown_timeout and status 0.
func (u *suite) stop(w *worker) {
	u.t.Helper()
	w.Terminate()
	u.ended(w)
}

// ended waits for a worker that was asked to end; a second signal would end it at once.
func (u *suite) ended(w *worker) {
	u.t.Helper()
	status, took := w.Wait()
	if status != 0 || took > 15*time.Second {
		u.t.Errorf("%s ended with status %d after %v, want 0 within shutdown_timeout 15s", w.Name, status, took)
	}
	u.stops = append(u.stops, took)
}

// feed writes events as long as a suite goes on.
type feed struct {
	stop context.CancelFunc
	done sync.WaitGroup
	err  error // why it ended; holds after done
}

// begin writes events to the input until settle, never more than setup.backlog ahead of the answers.
func (u *suite) begin() {
	ctx, stop := context.WithCancel(u.t.Context())
	u.feeding = &feed{stop: stop}
	maker := job.NewMaker(u.t, 1, 0)
	maker.Repetitive = u.setup.same
	client := u.c.Client
	if u.setup.codec != "" {
		client = u.compressing(codecs[u.setup.codec])
	}
	u.feeding.done.Go(func() { u.feeding.err = u.write(ctx, client, maker) })
	u.t.Cleanup(func() { stop(); u.feeding.done.Wait() }) // before the client is closed
}

// codecs are those of Kafka's compression.type.
var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// compressing returns a client that writes so.
func (u *suite) compressing(codec kgo.CompressionCodec) *kgo.Client {
	u.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(u.c.Direct()...), kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(5*time.Millisecond))
	must(u.t, err)
	u.t.Cleanup(client.Close)
	return client
}

func (u *suite) write(ctx context.Context, client *kgo.Client, maker *job.Maker) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		for ahead := u.written() - u.answered(); ahead < u.setup.backlog; ahead++ {
			id, origin, record := maker.Make(u.input, maker.AnyOf(u.setup.keys), u.sizeOf(u.written()))
			u.mu.Lock()
			u.events = append(u.events, origin)
			u.mu.Unlock()
			u.doom(id, record)
			client.Produce(u.t.Context(), record, func(r *kgo.Record, err error) {
				if err != nil && u.t.Context().Err() == nil {
					u.t.Errorf("writing event %d: %v", id, err)
				}
				u.mu.Lock()
				defer u.mu.Unlock()
				u.events[id].Partition, u.events[id].Offset = r.Partition, r.Offset
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return client.Flush(u.t.Context())
		}
	}
}

func (u *suite) written() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.events)
}

func (u *suite) sizeOf(event int) int {
	if u.setup.size == nil {
		return 0
	}
	return u.setup.size(event)
}

// progress waits until so many more calls were answered.
func (u *suite) progress(calls int) {
	u.t.Helper()
	from := u.api.Answers()
	waitFor(u.t, fmt.Sprintf("%d more calls are answered", calls), func() bool { return u.api.Answers() >= from+calls })
}

// endFeed has nothing more written to the input.
func (u *suite) endFeed() {
	u.t.Helper()
	if u.feeding != nil {
		u.feeding.stop()
		u.feeding.done.Wait()
		must(u.t, u.feeding.err)
	}
}

// settle ends the feed and waits until everything is committed.
func (u *suite) settle() {
	u.t.Helper()
	u.endFeed()
	topics := []string{u.input}
	if u.through() {
		topics = append(topics, u.between())
	}
	for _, topic := range topics {
		var err error
		waitFor(u.t, "everything of "+topic+" is committed", func() bool {
			var idle bool
			idle, err = job.Idle(u.t.Context(), u.c.Admin, u.group, topic)
			return idle
		})
		must(u.t, err)
	}
}

// owners returns how many members of the group have partitions, -1 where nobody can tell now.
func (u *suite) owners() int {
	n, err := job.Owners(u.t.Context(), u.c.Admin, u.group)
	if err != nil {
		return -1
	}
	return n
}

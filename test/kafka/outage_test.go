//go:build unix

package kafka_test

import (
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/internal/job"
	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// outageFile is a pipeline with the default limits and buffers, which gives an event as long as it takes.
const outageFile = `
name: %GROUP%
kafka: %KAFKA%
source:
  kafka: {topics: [%INPUT%]}
partition_by: [.wiki_id, .page.page_id]
process:
  - name: content
    http:
      url: %API%/page/\(.page.page_id)?id=\(.load.id)
      retry: {attempts: 0}
      total_timeout: 0
      into: .content
  - jq: .load.owner = "%WORKER%"
sink:
  kafka: {topic: %OUTPUT%, brokers: %SINK_BROKERS%}
error_sink:
  kafka: {topic: %ERRORS%, brokers: %SINK_BROKERS%}
gateway: {listen: "127.0.0.1:0"}
`

// outage is something that a job cannot do without, and that is away for long.
type outage struct {
	name  string
	zip   bool                                          // large events are compressed to next to nothing
	sink  bool                                          // output and errors are on a cluster of their own
	begin func(t *testing.T, u *suite, d time.Duration) // returns after d, with the fault in place
	end   func(t *testing.T, u *suite)
}

// The first two are in make test.
var outages = []outage{
	{
		name: "the broker of the sink is killed", sink: true,
		begin: func(t *testing.T, u *suite, d time.Duration) { u.sink.Nodes[0].Kill(); pause(t, d) },
		end:   func(t *testing.T, u *suite) { must(t, u.sink.Nodes[0].Start(t.Context())) },
	},
	{
		name: "the API refuses, hangs and is unavailable",
		begin: func(t *testing.T, u *suite, d time.Duration) {
			for _, m := range []job.Mode{job.Refuses, job.Hangs, job.Unavailable} {
				must(t, u.api.Become(m))
				pause(t, d/3)
			}
		},
		end: func(t *testing.T, u *suite) { must(t, u.api.Become(job.Answers)) },
	},
	{
		name: "the broker of the sink is stopped where it is", sink: true,
		begin: func(t *testing.T, u *suite, d time.Duration) { u.sink.Nodes[0].Pause(); pause(t, d) },
		end:   func(_ *testing.T, u *suite) { u.sink.Nodes[0].Continue() },
	},
	{
		name: "the API hangs, and the input is compressed", zip: true,
		begin: func(t *testing.T, u *suite, d time.Duration) { must(t, u.api.Become(job.Hangs)); pause(t, d) },
		end:   func(t *testing.T, u *suite) { must(t, u.api.Become(job.Answers)) },
	},
}

// What is away for ten minutes is waited for: memory stays within its bound, no event becomes an error event or is
// lost, and the work goes on by itself. The input always has more than the limits let in, and large events among the
// small ones.
func TestAnOutageIsSatOutWithinTheMemoryOfTheDefaultLimits(t *testing.T) {
	c := shared.one(t)
	for _, o := range outages[:rounds(2, len(outages))] {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			sitOut(t, c, o)
		})
	}
}

func sitOut(t *testing.T, c *cluster.Cluster, o outage) {
	s := setup{file: outageFile, limit: 10_000, backlog: rounds(4_500, 12_000), keys: 20_000, sample: 200 * time.Millisecond, size: mixed}
	if o.sink {
		s.sink = cluster.Start(t, cluster.Options{})
	}
	if o.zip {
		s.partitions, s.codec, s.same = 12, "zstd", true
		s.size = func(int) int { return 150_000 }
		s.backlog = 2_000
	}
	u := newSuite(t, c, s)
	u.begin()
	w := u.start()
	u.working(w)
	length := 5 * time.Second
	if *full {
		length = 10 * time.Minute
	}
	u.rounds++
	o.begin(t, u, length)
	// Without it the outage would be no load.
	waitFor(t, "a limit stops the polling", func() bool { return w.Metrics().Value("enricher_paused_seconds_total") > 0 })
	held := w.Metrics()
	t.Logf("after %v: %.0f events and %.1f MiB in flight, polling stopped for %.1fs, %.1f MiB in memory now and %.1f at most", length,
		held.Value("enricher_in_flight_events"), held.Value("enricher_in_flight_bytes")/(1<<20), held.Value("enricher_paused_seconds_total"),
		job.Resident(w.Pid)/(1<<20), job.PeakResident(w.Pid)/(1<<20))
	before, back := w.watch.Last().Emitted, time.Now()
	o.end(t, u)
	waitFor(t, "the work goes on", func() bool { return w.watch.Last().Emitted > before })
	resumed := time.Since(back)
	u.check(0)
	t.Logf("the first output came %v after the return; %.1f MiB in memory at most", resumed.Round(time.Millisecond), w.watch.Most().Resident/(1<<20))
}

// mixed makes one in five events 100 kB long.
func mixed(event int) int {
	if event%5 == 0 {
		return 100_000
	}
	return 0
}

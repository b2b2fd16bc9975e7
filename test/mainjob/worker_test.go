//go:build unix

package mainjob_test

import (
	"fmt"
	"testing"

	"github.com/a0c75104/enricher/test/internal/job"
)

// Names in the pipeline file of every worker.
const (
	group       = "mainjob"
	inputTopic  = "in"
	outputTopic = "out"
	errorTopic  = "errors"
)

// topics are those of the pipeline, with their partitions.
func topics() map[string]int { return map[string]int{inputTopic: 8, outputTopic: 8, errorTopic: 1} }

// pipelineFile is like the one that users read about first. The session is short, so that a killed worker is soon
// given up. %[1]s is the broker, %[2]s the API.
const pipelineFile = `
name: mainjob
kafka: {brokers: ["%[1]s"]}
source:
  kafka:
    topics: [in]
    options: {session.timeout.ms: 3000, heartbeat.interval.ms: 300}
filter: .meta.domain != "canary"
partition_by: [.wiki_id, .page.page_id]
workers: 64
order: key
process:
  - name: content
    when: .load.id != null
    http:
      url: %[2]s/page/\(.page.page_id)?id=\(.load.id)
      into: .content
  - jq: .load.owner = "%%WORKER%%"
sink:
  kafka: {topic: out}
error_sink:
  kafka: {topic: errors}
gateway: {listen: "127.0.0.1:0"}
`

// startWorker runs the pipeline, with overrides such as "limits.in_flight_events=100", until the test
// ends at the latest. It returns when its metrics are served.
func startWorker(t *testing.T, b *broker, a *job.API, overrides ...string) *job.Worker {
	t.Helper()
	return job.StartWorker(t, job.WorkerConfig{
		Binary: enricherBinary, File: fmt.Sprintf(pipelineFile, b.addr, a.URL), Set: overrides, Patience: patience,
	})
}

package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// recordOverhead is about what the client adds to each record that it holds.
	recordOverhead = 200
	// firstGrowth is how many times larger a fetch may become than it was sent before anything is known.
	firstGrowth = 8
	// leastFetch is what is asked for however much it becomes. A broker sends at least one batch anyway.
	leastFetch = 1 << 10
)

// unpacking asks for as much as becomes fetch.max.bytes once it is unpacked. That setting is of what comes over the
// network, and compressed records become many times as large.
type unpacking struct {
	most, part int64 // fetch.max.bytes, max.partition.fetch.bytes

	mu     sync.Mutex // guards growth
	client *kgo.Client
	growth float64 // of late; 0: not known
}

var (
	_ kgo.HookNewClient      = (*unpacking)(nil)
	_ kgo.HookFetchBatchRead = (*unpacking)(nil)
)

func newUnpacking(set *settings) *unpacking {
	return &unpacking{most: set.number("fetch.max.bytes"), part: set.number("max.partition.fetch.bytes")}
}

// OnNewClient implements kgo.HookNewClient.
func (u *unpacking) OnNewClient(cl *kgo.Client) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.client, u.growth = cl, 0
	cl.UpdateFetchMaxBytes(ask(u.most, firstGrowth), ask(u.part, firstGrowth))
}

// OnFetchBatchRead implements kgo.HookFetchBatchRead.
func (u *unpacking) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	if m.NumRecords == 0 || m.CompressedBytes == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.growth
	u.growth = grown(before, m)
	if u.growth != before {
		u.client.UpdateFetchMaxBytes(ask(u.most, u.growth), ask(u.part, u.growth))
	}
}

// grown returns by how much fetches grow, when a batch was seen: soon more than before, and late less.
func grown(before float64, m kgo.FetchBatchMetrics) float64 {
	now := max(1, float64(m.UncompressedBytes+recordOverhead*m.NumRecords)/float64(m.CompressedBytes))
	switch {
	case before == 0:
		return now
	case now > before:
		return before + (now-before)/2
	}
	return before + (now-before)/8
}

// ask returns how much to ask for where most may become of it.
func ask(most int64, growth float64) int32 {
	return int32(min(most, max(leastFetch, int64(float64(most)/growth))))
}

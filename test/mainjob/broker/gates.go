package main

import (
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// gates hold the produce requests of some topics.
type gates struct {
	cluster *kfake.Cluster

	mu     sync.Mutex // guards closed
	closed map[string]*gate
}

// gate is one topic's. Requests name it by its id or its name, depending on their version.
type gate struct {
	topic  string
	id     [16]byte
	opened chan struct{}
}

func newGates(cluster *kfake.Cluster) *gates {
	g := &gates{cluster: cluster, closed: map[string]*gate{}}
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for {
			held := g.holding(req.(*kmsg.ProduceRequest))
			if held == nil {
				return nil, nil, false
			}
			cluster.SleepControl(func() { <-held.opened })
		}
	})
	return g
}

// holding returns a closed gate in the way of the request, nil if there is none.
func (g *gates) holding(req *kmsg.ProduceRequest) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, closed := range g.closed {
		for _, t := range req.Topics {
			if t.Topic == closed.topic || t.TopicID == closed.id {
				return closed
			}
		}
	}
	return nil
}

func (g *gates) close(topic string) error {
	// The control function runs where the cluster answers this, so ask before taking the lock.
	info := g.cluster.TopicInfo(topic)
	if info == nil {
		return fmt.Errorf("holding topic %q: there is no such topic", topic)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed[topic] == nil {
		g.closed[topic] = &gate{topic: topic, id: info.TopicID, opened: make(chan struct{})}
	}
	return nil
}

func (g *gates) open(topic string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gate := g.closed[topic]; gate != nil {
		close(gate.opened)
		delete(g.closed, topic)
	}
}

func (g *gates) openAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, gate := range g.closed {
		close(gate.opened)
		delete(g.closed, topic)
	}
}

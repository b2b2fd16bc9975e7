//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// MakeTopic makes a topic with as many replicas as there are nodes, and waits until every node that runs knows its
// leaders. configs are by Kafka's own names and may be nil.
func (c *Cluster) MakeTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	values := map[string]*string{}
	for name, value := range configs {
		values[name] = &value
	}
	made, err := c.Admin.CreateTopic(ctx, int32(partitions), -1, values, topic)
	if err = errors.Join(err, made.Err); err != nil {
		return fmt.Errorf("making topic %q: %w", topic, err)
	}
	for _, n := range c.Nodes {
		if !n.Running() {
			continue
		}
		if err := until(ctx, func() error { return c.knows(ctx, n, topic, partitions) }); err != nil {
			return fmt.Errorf("making topic %q: %w", topic, err)
		}
	}
	return nil
}

func (c *Cluster) knows(ctx context.Context, n *Node, topic string, partitions int) error {
	request := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, asked)
	answer, err := c.Client.Broker(n.ID).RetriableRequest(ctx, request)
	if err != nil {
		return err
	}
	led := 0
	for _, t := range answer.(*kmsg.MetadataResponse).Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && p.Leader > 0 {
				led++
			}
		}
	}
	if led != partitions {
		return fmt.Errorf("node %d knows leaders of %d partitions, want %d", n.ID, led, partitions)
	}
	return nil
}

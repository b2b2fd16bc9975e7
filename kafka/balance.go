package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// evenly shares out the partitions of one topic by themselves, and those of all others together, each as the
// balancer in it does. Partitions of the repartition topic have all the work, those of the input next to none: counted
// together, a worker could get all of the one kind.
type evenly struct {
	kgo.GroupBalancer
	topic string
}

// asBefore is a balancer whose plans are taken as they are.
type asBefore interface {
	kgo.GroupBalancer
	kgo.ConsumerBalancerBalance
}

// MemberBalancer implements kgo.GroupBalancer.
func (e evenly) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	b, err := kgo.NewConsumerBalancer(e, members)
	if err != nil {
		return nil, nil, err
	}
	return b, b.MemberTopics(), nil
}

// Balance implements kgo.ConsumerBalancerBalance.
func (e evenly) Balance(b *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	plan := b.NewPlan()
	for _, inner := range []bool{true, false} {
		if err := e.share(b, plan, topics, func(topic string) bool { return (topic == e.topic) == inner }); err != nil {
			b.SetError(err)
		}
	}
	return plan
}

// share adds the shares in those topics that are wanted to plan.
func (e evenly) share(b *kgo.ConsumerBalancer, plan *kgo.BalancePlan, topics map[string]int32, wanted func(topic string) bool) error {
	some := map[string]int32{}
	for topic, n := range topics {
		if wanted(topic) {
			some[topic] = n
		}
	}
	var members []kmsg.JoinGroupResponseMember
	byID := map[string]*kmsg.JoinGroupResponseMember{}
	b.EachMember(func(m *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		byID[m.MemberID] = m
		part := *m
		part.ProtocolMetadata = metadataOf(meta, wanted)
		members = append(members, part)
	})
	shares, err := kgo.NewConsumerBalancer(e.GroupBalancer.(asBefore), members)
	if err != nil {
		return err
	}
	made, err := shares.BalanceOrError(some)
	if err != nil {
		return err
	}
	for id, has := range made.(*kgo.BalancePlan).AsMemberIDMap() {
		for topic, partitions := range has {
			plan.AddPartitions(byID[id], topic, partitions)
		}
	}
	return nil
}

// metadataOf is what a member said, as far as it is about topics that are wanted.
func metadataOf(meta *kmsg.ConsumerMemberMetadata, wanted func(topic string) bool) []byte {
	part := *meta
	part.Topics, part.OwnedPartitions = nil, nil
	for _, topic := range meta.Topics {
		if wanted(topic) {
			part.Topics = append(part.Topics, topic)
		}
	}
	for _, owned := range meta.OwnedPartitions {
		if wanted(owned.Topic) {
			part.OwnedPartitions = append(part.OwnedPartitions, owned)
		}
	}
	var sticky kmsg.StickyMemberMetadata
	if err := sticky.ReadFrom(meta.UserData); err == nil {
		had := sticky.CurrentAssignment
		sticky.CurrentAssignment = nil
		for _, a := range had {
			if wanted(a.Topic) {
				sticky.CurrentAssignment = append(sticky.CurrentAssignment, a)
			}
		}
		part.UserData = sticky.AppendTo(nil)
	}
	return part.AppendTo(nil)
}

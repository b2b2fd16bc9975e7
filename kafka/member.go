package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinsWithin is how long joining a group takes where nobody holds it up.
const joinsWithin = 5 * time.Second

// sayWaits says once that the group is waited for, though nothing else is wrong.
func (s *Source) sayWaits(ctx context.Context) {
	for well := time.Duration(0); well < joinsWithin; well += time.Second {
		if !pause(ctx, time.Second) || s.isJoined() {
			return
		}
		if s.t.worst(troubleBroker) != nil {
			well = -time.Second
		}
	}
	s.waits.Store(true)
	s.t.log.Info("kafka: "+s.waitsFor(), "group", s.cfg.Group)
}

// waitsFor names what a group mostly waits for.
func (s *Source) waitsFor() string {
	const session = "session.timeout.ms"
	return fmt.Sprintf("waiting for the group: a killed member is given up after %s (%v)", session, s.set.millis(session))
}

func (s *Source) isJoined() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined
}

// closeClient closes cl, and ends it the hard way when ctx ends or that takes too long.
func closeClient(ctx context.Context, cl *kgo.Client, end context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, end)()
	leave, left := halfOf(ctx)
	err := cl.LeaveGroupContext(leave) // an error means that the group finds out by itself
	left()
	if err != nil {
		leaveAsJoining(ctx, cl)
	}
	cl.Close()
	end()
}

// leaveAsJoining takes a member out of its group whose client still waits for its place there: the client
// leaves only once it has one, and the group would wait for the member in this rebalance and the next.
func leaveAsJoining(ctx context.Context, cl *kgo.Client) {
	member, _ := cl.GroupMetadata()
	group, _ := cl.OptValue(kgo.ConsumerGroup).(string)
	instance, _ := cl.OptValue(kgo.InstanceID).(string)
	if member == "" || group == "" || instance != "" {
		return
	}
	ctx, done := halfOf(ctx)
	defer done()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, member
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = member
	req.Members = append(req.Members, m)
	_, _ = req.RequestWith(ctx, cl) // an error means that the group finds out by itself
}

// halfOf returns a context that ends in the middle of the time that ctx has.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	until, _ := ctx.Deadline()
	return context.WithTimeout(ctx, time.Until(until)/2)
}

package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/a0c75104/enricher/streammanager"
)

// guard looks after what the library may do wrong without a word: partitions that it holds and does not
// read, and a group that has no place for this worker or for a partition. It belongs to watch.
//
// All of its times are multiples of how often topics are looked at. What it suspects must hold over several
// looks, since a group takes a while to settle.
type guard struct {
	s         *Source
	unit      time.Duration
	looked    time.Time // when the last look was over
	suspected map[suspect]*suspicion
}

// suspect is one thing that may stand still.
type suspect struct {
	what streammanager.Stall
	tp   streammanager.TopicPartition
}

// suspicion is what is held against a suspect.
type suspicion struct {
	since time.Time
	steps int   // of recovery that were tried
	at    int64 // offset of a partition
	looks int
	busy  bool // other partitions were read meanwhile
	seen  bool // in this look
}

const (
	starvedUnits = 2  // a poll waits while a partition that it should deliver has records
	busyUnits    = 10 // others are delivered meanwhile, and might only be ahead of it
	memberUnits  = 1
	unownedUnits = 3
	restUnits    = 6 // of a group that does not come to rest
	smallestUnit = 500 * time.Millisecond
)

func newGuard(s *Source) *guard {
	return &guard{s: s, unit: max(s.set.millis("metadata.max.age.ms"), smallestUnit), suspected: map[suspect]*suspicion{}}
}

// look suspects, and acts on what has stood still for long.
func (g *guard) look(ctx context.Context, topics kadm.TopicDetails) {
	g.begin()
	g.partitions(ctx, topics)
	g.group(ctx, topics)
	g.end()
}

// begin begins a look. After a time in which nobody ran, as in a process that was stopped, two looks that see the same say
// little: what is suspected has to hold once more from here on.
func (g *guard) begin() {
	nobodyRan := !g.looked.IsZero() && time.Since(g.looked) > max(2*g.unit, lookTimeout)
	for _, sus := range g.suspected {
		sus.seen = false
		if nobodyRan {
			sus.since, sus.looks, sus.busy = time.Now(), 0, false
		}
	}
}

// end ends a look: what was not seen in it moves.
func (g *guard) end() {
	for who, sus := range g.suspected {
		if sus.seen {
			continue
		}
		delete(g.suspected, who)
		g.s.t.healed(who.trouble())
	}
	g.looked = time.Now()
}

func (w suspect) trouble() trouble {
	about := string(w.what)
	if w.tp.Topic != "" {
		about = fmt.Sprintf("%s/%d", w.tp.Topic, w.tp.Partition)
	}
	return trouble{kind: troubleStall, about: about}
}

// suspect notes that something stands still, and returns since when that is seen.
func (g *guard) suspect(who suspect, at int64) (*suspicion, time.Duration) {
	sus := g.suspected[who]
	if sus == nil || sus.at != at {
		if sus != nil {
			g.s.t.healed(who.trouble())
		}
		sus = &suspicion{since: time.Now(), at: at}
		g.suspected[who] = sus
	}
	sus.seen = true
	sus.looks++
	return sus, time.Since(sus.since)
}

// act takes the next step against something that stands still, and waits as long again for what it does.
func (g *guard) act(who suspect, sus *suspicion, err error, steps ...func()) {
	if sus.steps == 0 {
		g.s.stalls.count(who.what)
	}
	g.s.t.note(who.trouble(), err)
	next := "nothing more can be done here"
	if sus.steps < len(steps) {
		next = "trying to set it going"
	}
	args := []any{"reason", string(who.what), "err", err, "step", sus.steps + 1}
	if who.tp.Topic != "" {
		args = append(args, "topic", who.tp.Topic, "partition", who.tp.Partition, "offset", sus.at)
	}
	if sus.steps <= len(steps) {
		g.s.t.log.Warn("kafka: something stands still: "+next, args...)
	}
	if sus.steps < len(steps) {
		steps[sus.steps]()
	}
	sus.steps++
	sus.since, sus.looks, sus.busy = time.Now(), 0, false
}

// giveUp has the pipeline started again.
func (g *guard) giveUp(err error) func() {
	return func() { g.s.giveUp(&streammanager.FailedError{Reason: streammanager.ReasonStalled, Err: err}) }
}

// partitions looks for those that are held, have records left, and are not delivered although somebody polls.
func (g *guard) partitions(ctx context.Context, topics kadm.TopicDetails) {
	held := g.s.flowing()
	if len(held) == 0 {
		return
	}
	waits, polled := g.s.asking.state(min(g.unit/2, 5*time.Second))
	if !waits && !polled {
		return // nobody asks for records: limits are full
	}
	ends := g.s.endsOf(ctx, topics, slices.Collect(maps.Keys(held)), g.s.isolation())
	waiting := map[streammanager.TopicPartition]int64{}
	for tp, next := range held {
		end, ok := ends[tp]
		if !ok || end <= next {
			if ok && g.s.untilOf(tp) < noEnd { // a bounded read waits there
				waiting[tp] = next
			}
			continue
		}
		who := suspect{streammanager.StallPartition, tp}
		sus, still := g.suspect(who, next)
		sus.busy = sus.busy || !waits
		units := starvedUnits
		if sus.busy {
			units = busyUnits
		}
		if still < time.Duration(units)*g.unit || sus.looks < 2 {
			continue
		}
		if there, err := g.s.peek(ctx, topics, tp, next); !there {
			if err == nil {
				sus.since = time.Now() // offsets that hold no record
			}
			continue
		}
		g.starved(who, sus, end)
	}
	g.short(ctx, topics, waiting)
}

func (g *guard) starved(who suspect, sus *suspicion, end int64) {
	tp, next := who.tp, sus.at
	err := fmt.Errorf("topic %q partition %d is assigned and stands still at offset %d, with %d offsets left: its records are not delivered",
		tp.Topic, tp.Partition, next, end-next)
	g.act(who, sus, err,
		func() { g.s.askRefetch(tp, next) },
		func() { g.s.forget(tp.Topic) },
		g.giveUp(err))
}

// group looks at what the coordinator says of the group.
func (g *guard) group(ctx context.Context, topics kadm.TopicDetails) {
	ask, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := g.s.adm.DescribeGroups(ask, g.s.cfg.Group)
	described, ok := found[g.s.cfg.Group]
	if err != nil || !ok || described.Err != nil {
		return // without the right to describe it, nothing is seen
	}
	g.place(&described)
	g.rest(&described)
	g.unowned(&described, topics)
}

// place looks whether the group knows this worker, and whether this worker knows what it was given.
func (g *guard) place(d *kadm.DescribedGroup) {
	member, _ := g.s.cl.GroupMetadata()
	held, settling := g.s.holds()
	if member == "" || settling {
		g.keep(streammanager.StallMember)
		return
	}
	at := slices.IndexFunc(d.Members, func(m kadm.DescribedGroupMember) bool { return m.MemberID == member })
	who := suspect{what: streammanager.StallMember}
	var err error
	switch {
	case at < 0 && len(held) > 0:
		err = fmt.Errorf("group %q does not know this worker any more, which holds %d partitions", g.s.cfg.Group, len(held))
	case at < 0:
		err = fmt.Errorf("group %q does not know this worker, which believes to be its member", g.s.cfg.Group)
	case d.State != "Stable":
		g.keep(streammanager.StallMember)
	default:
		if tp, left := g.notBegun(held, assignedTo(&d.Members[at])); left {
			who.tp = tp
			err = fmt.Errorf("topic %q partition %d is assigned to this worker by group %q, and was not begun", tp.Topic, tp.Partition, g.s.cfg.Group)
		}
	}
	if err == nil {
		return
	}
	sus, still := g.suspect(who, -1)
	if still < memberUnits*g.unit || sus.looks < 2 {
		return
	}
	g.act(who, sus, err, func() { g.rejoin(who) }, func() { g.rejoin(who) }, g.giveUp(err))
}

// keep leaves suspicions as they are, in a look that tells nothing of them.
func (g *guard) keep(what streammanager.Stall) {
	for who, sus := range g.suspected {
		if who.what == what {
			sus.seen = true
		}
	}
}

// notBegun returns one of assigned that is not held: the one that is suspected already, or the first. Another in each look
// would never be seen twice.
func (g *guard) notBegun(held, assigned map[streammanager.TopicPartition]bool) (first streammanager.TopicPartition, found bool) {
	for tp := range assigned {
		switch {
		case held[tp]:
			continue
		case g.suspected[suspect{streammanager.StallMember, tp}] != nil:
			return tp, true
		case !found || tp.Topic < first.Topic || tp.Topic == first.Topic && tp.Partition < first.Partition:
			first, found = tp, true
		}
	}
	return first, found
}

// rejoin has the library join the group once more.
func (g *guard) rejoin(who suspect) {
	if who.tp.Topic != "" {
		g.s.forget(who.tp.Topic)
		return
	}
	g.s.expel()
	g.s.cl.ForceRebalance()
}

// rest looks whether the group comes to rest.
func (g *guard) rest(d *kadm.DescribedGroup) {
	if d.State != "PreparingRebalance" && d.State != "CompletingRebalance" {
		return
	}
	who := suspect{what: streammanager.StallRebalance}
	sus, still := g.suspect(who, -1)
	if still < max(restUnits*g.unit, 3*g.s.set.millis("max.poll.interval.ms")) {
		return
	}
	g.act(who, sus, fmt.Errorf("group %q with %d members does not come to rest, it is in %s for %v: members may come and go, or take too long to give partitions back",
		g.s.cfg.Group, len(d.Members), d.State, still.Round(time.Second)))
}

// unowned looks for partitions that no member has although the group is at rest.
func (g *guard) unowned(d *kadm.DescribedGroup, topics kadm.TopicDetails) {
	if d.State != "Stable" {
		return
	}
	owned := map[streammanager.TopicPartition]bool{}
	for i := range d.Members {
		for tp := range assignedTo(&d.Members[i]) {
			owned[tp] = true
		}
	}
	for _, td := range topics.Sorted() {
		for _, p := range td.Partitions.Sorted() {
			tp := streammanager.TopicPartition{Topic: td.Topic, Partition: p.Partition}
			if td.Err != nil || owned[tp] {
				continue
			}
			who := suspect{streammanager.StallUnowned, tp}
			sus, still := g.suspect(who, -1)
			if still < unownedUnits*g.unit || sus.looks < 2 {
				continue
			}
			err := fmt.Errorf("topic %q partition %d belongs to none of the %d members of group %q", tp.Topic, tp.Partition, len(d.Members), g.s.cfg.Group)
			g.act(who, sus, err, g.ownedAgain(tp.Topic, err)...)
		}
	}
}

// ownedAgain returns the steps that have a group share a topic out which it does not know in full. Only a worker that holds
// nothing of the topic begins it anew: any other would give up what it reads of it, without a last commit.
func (g *guard) ownedAgain(topic string, err error) []func() {
	held, _ := g.s.holds()
	for tp := range held {
		if tp.Topic == topic {
			return []func(){g.shareOut, g.shareOut}
		}
	}
	steps := []func(){g.shareOut, func() { g.s.forget(topic) }}
	if len(held) == 0 { // there is nothing to lose
		steps = append(steps, g.giveUp(err))
	}
	return steps
}

// shareOut has the group share its partitions out once more, if this worker leads it.
func (g *guard) shareOut() {
	g.s.cl.ForceMetadataRefresh()
	g.s.cl.ForceRebalance()
}

func assignedTo(m *kadm.DescribedGroupMember) map[streammanager.TopicPartition]bool {
	tps := map[streammanager.TopicPartition]bool{}
	if a, ok := m.Assigned.AsConsumer(); ok {
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				tps[streammanager.TopicPartition{Topic: t.Topic, Partition: p}] = true
			}
		}
	}
	return tps
}

var errNoLeader = errors.New("the partition has no leader")

// flowing returns the partitions that are to be read, with the offset of the record that comes next.
func (s *Source) flowing() map[streammanager.TopicPartition]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[streammanager.TopicPartition]int64{}
	for tp, h := range s.held {
		_, paused := s.paused[tp]
		_, resting := s.resting[tp]
		if !paused && !resting && !h.stale && !h.ended {
			next[tp] = h.next
		}
	}
	return next
}

// holds returns what is held, and whether the start of a topic is being settled.
func (s *Source) holds() (held map[streammanager.TopicPartition]bool, settling bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held = make(map[streammanager.TopicPartition]bool, len(s.held))
	for tp := range s.held {
		held[tp] = true
	}
	return held, !s.joined || s.settling.Load() > 0
}

package streammanager

// Stall is what was found to stand still, in a word: the label of enricher_stalls_total.
type Stall string

// The stalls. A source or sink sets going what it can by itself.
const (
	StallEvent     Stall = "event"     // an event that does not finish holds its partition up
	StallPoll      Stall = "poll"      // a poll does not return although it was told to
	StallCommit    Stall = "commit"    // positions are not kept
	StallPartition Stall = "partition" // an assigned partition delivers nothing although there is something
	StallMember    Stall = "member"    // the group has gone on without this worker, which did not hear of it
	StallUnowned   Stall = "unowned"   // a partition of the topics belongs to no worker of the group
	StallRebalance Stall = "rebalance" // the group does not come to rest
	StallTopic     Stall = "topic"     // a topic was deleted and made again
)

// Stalls returns all of them.
func Stalls() []Stall {
	return []Stall{StallEvent, StallPoll, StallCommit, StallPartition, StallMember, StallUnowned, StallRebalance, StallTopic}
}

// Staller is the ability of a source or sink to tell how often it has found something to stand still.
type Staller interface {
	Stalled() map[Stall]int64
}

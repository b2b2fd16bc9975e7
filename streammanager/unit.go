package streammanager

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/a0c75104/enricher/event"
)

// unit is one input event from its reading to its outcome.
type unit struct {
	ev     *event.Event // as it was read; its bytes are never handed out writable
	part   *partition
	offset int64  // of its record in part: after the repartition topic that of ev is another
	number uint64 // in the partition's tracker
	order  uint64 // of its reading, over all partitions
	size   int64  // bytes counted in the limits: the input, later its outputs too
	input  int64  // those of the input
	owing  bool   // its outputs are not known yet; room is kept for them
	readAt time.Time

	key   string
	group string
	loose bool // no key: no lane, no order
	pass  bool // a tombstone: no function touches it

	passed *Record // of a tombstone, as the sink wants it

	ks      *keyState
	flows   []*flow // what the event has become so far, in the order of the outputs
	open    int     // flows that are not at their end
	failure *Failure
	moved   Record // of the repartition topic, where it goes there
	state   unitState
	settled bool // finished, in an epoch that goes on
}

type unitState uint8

const (
	unitQueued   unitState = iota // in a lane, window or queue
	unitRunning                   // in a batch, functions not done
	unitDone                      // functions done, waits for its turn
	unitLeaving                   // handed to the emitter
	unitFinished                  // has its outcome
)

// flow is one event on its way through the chain; functions that yield several make several.
type flow struct {
	u        *unit
	ev       *event.Event // as it enters the step
	step     int
	attempts *event.Attempts // of the step on this event
	state    flowState
	out      *Record // nil: none
	kept     int64   // bytes of ev that are counted: it is not what was read, and waits on its way
}

type flowState uint8

const (
	flowIdle    flowState = iota
	flowReady             // waits for a worker
	flowSerial            // waits for another flow of its key
	flowRunning           // in a call
	flowWaiting           // between two tries
	flowArrived           // waits for the rest of its batch before a BatchFunc
	flowEnded             // has its output, or none
)

// batch is a closed window on its way through the functions.
type batch struct {
	units      []*unit
	keys       map[string]*keyState
	dispatched time.Time
	open       int // units whose functions are not done
	active     int // flows that are ready or running
	arrived    []*flow
	observed   bool
}

// keyState is a key in a batch: its events leave in their order.
type keyState struct {
	b       *batch
	key     string
	loose   bool
	units   []*unit
	release int // units before it were handed on
	left    int // units without an outcome
	kept    int // units, from the first on, that are finished
	serial  []*flow
	active  int // flows ready, running or waiting, under OrderKeySerial
	freed   bool
	gaps    []*partition // partitions of which an event was given up: what is behind it must not overtake it
}

// call is one run on a worker: a single flow through as many steps as need no wait, or the flows of a
// batch through one BatchFunc, or the events of a partition through a chain without calls.
type call struct {
	flows     []*flow
	batchStep bool
	inline    *partition
	ctx       context.Context
	cancel    context.CancelFunc
	deadline  atomic.Int64 // ns since the stream's start; 0: none. The worker moves it from step to step.
	at        atomic.Int32 // the step that runs
	results   []result
	timer     *timer // looks whether it hangs; nil: nothing bounds it
	room      *room  // what it holds of answers; nil: of a chain without calls, none
	abandoned bool
	returned  bool
}

// result is what a call made of one flow.
type result struct {
	step    int            // reached step
	ev      *event.Event   // the event as it enters that step
	events  []*event.Event // several: they enter step
	records []Record       // at the end of the chain
	ended   bool
	err     error
	tries   *event.Attempts
}

package streammanager

import (
	"context"
	"time"

	"github.com/a0c75104/enricher/event"
)

// TopicPartition names one partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Record is what a source delivers and a sink takes.
type Record struct {
	Topic     string
	Partition int32 // of a source
	Offset    int64 // of a source
	Key       []byte
	Value     []byte
	Headers   []event.Header
	Timestamp time.Time
	// Marker is true for what takes an offset but is no event, such as a transaction's end.
	Marker bool
}

// Polled is what one poll delivered. Its slices and their bytes belong to the source and are valid
// until the next Poll; the stream copies what it keeps.
type Polled struct {
	Records []Record
	// HighWatermarks holds the end of the log of each partition that answered.
	HighWatermarks map[TopicPartition]int64
}

// A Source delivers the records of the partitions that it is assigned, in order per partition.
type Source interface {
	// Open starts the source without waiting for its server; trouble with the server is logged, kept
	// for Health, and tried again. From now on, until Close, changes of the assignment are told to a.
	Open(ctx context.Context, a Assignments) error
	// Poll waits until there is a record and returns at most limit of them. It returns io.EOF at the
	// end of a bounded source, and ctx's error when ctx ends. Any other error ends the pipeline. A bounded source has
	// not ended while partitions are being revoked, or while another worker may fail whose partitions it would get. It
	// may be polled again after its end, when partitions were given or taken since.
	Poll(ctx context.Context, limit int) (Polled, error)
	// Close gives the partitions back without revoking calls, as long as ctx allows, and frees everything.
	// After it no method of a is called.
	Close(ctx context.Context)
}

// Assignments is told of changes of the assignment. The stream implements it; its methods may be
// called from any goroutine, one at a time.
type Assignments interface {
	// Assigned adds partitions, each with the offset of the first record that will be delivered, and with
	// what is finished behind it: that is delivered too, and passed over.
	Assigned(starts map[TopicPartition]Position)
	// Revoked takes partitions away. It returns when their running work has ended or been given up and
	// what is finished was committed, or when ctx ends; afterwards they belong to somebody else.
	Revoked(ctx context.Context, tps []TopicPartition)
	// Lost takes partitions away that already belong to somebody else: nothing may be committed.
	Lost(tps []TopicPartition)
}

// Committer is the ability of a source to keep positions: always the offset of the next record to read, and
// what is finished behind it where it can; that alone may be told again by Assigned. An error that wraps
// ErrAssignmentLost means that nothing may be committed for them any more.
type Committer interface {
	Commit(ctx context.Context, positions map[TopicPartition]Position) error
}

// Transactor is the ability of a source to bind what its stream writes, and the positions, into transactions: either
// all of a transaction is seen or nothing. The stream then never calls Commit. Its sinks must write within the
// source's transaction, and the source must be a Rewinder.
type Transactor interface {
	// Begin begins a transaction, before the first record of it is produced. It is not called where one goes on.
	Begin(ctx context.Context) error
	// End writes what is buffered and ends the transaction: with commit it is committed together with the
	// positions, else aborted, also where none was begun. Nothing is polled or produced meanwhile. It keeps trying as
	// long as ctx allows, and reports whether the transaction was committed: false without an error means that it
	// was aborted, and an error that no further transaction is possible. Where a partition is taken away before it
	// has ended, it is aborted, or the partition is given to nobody until its end is known.
	End(ctx context.Context, commit bool, positions map[TopicPartition]Position) (committed bool, err error)
	// TransactionTimeout is after how long the server aborts a transaction by itself.
	TransactionTimeout() time.Duration
}

// Rewinder is the ability of a source to deliver again from earlier (or later) offsets. Records that
// it had fetched for those partitions are forgotten.
type Rewinder interface {
	Rewind(offsets map[TopicPartition]int64)
}

// Pauser is the ability of a source to leave partitions out of its fetches while the others go on.
type Pauser interface {
	Pause(tps ...TopicPartition)
	Resume(tps ...TopicPartition)
}

// Settler is the ability of a source to wait until the group has finished, which is committed, all that is in a
// topic now. It asks again by itself where its server does not answer; an error means that it was told to end.
type Settler interface {
	Settled(ctx context.Context, topic string) error
}

// A Sink writes records.
type Sink interface {
	// Open starts the sink without waiting for its server.
	Open(ctx context.Context) error
	// Produce hands one record over and returns; it may wait while buffers are full. done is called
	// exactly once, from any goroutine, and never blocks: with nil when the record is durable; with a
	// Reject (see event.Reject) when the record itself is at fault; with an event.Fatal when writing
	// will never work again; with any other error when the sink failed and the record may be written
	// later. Records of one key and topic are written in the order of the calls.
	Produce(ctx context.Context, r *Record, done func(error))
	// Close writes what is buffered, as long as ctx allows, and frees everything.
	Close(ctx context.Context) error
}

// Preparer is the ability of a sink to make its record from an event, by expressions of the user. It
// runs on a worker, for many events at once. Without it a record takes over the event's key, value,
// headers and timestamp.
type Preparer interface {
	Prepare(ev *event.Event) (Record, error)
}

// Checker is the ability of a sink to tell before Produce that a record will be refused. All outputs
// of an event are checked before the first is sent. The error is a Reject.
type Checker interface {
	Check(r *Record) error
}

// Health is the ability of a source or sink to say whether its server answers: nil, or the cause in
// words for an operator.
type Health interface {
	Health() error
}

// Buffered is the ability of a source or sink to say how many bytes its client may hold outside the
// stream's limits.
type Buffered interface {
	BufferBytes() int64
}

// Skipper is the ability of a source to tell how many records it has passed over, since they were gone before they
// could be read.
type Skipper interface {
	Skipped() int64
}

// Ender is the ability of a source to tell where the logs of its partitions end, as far as it knows: also of those of
// which it has delivered nothing yet, or has not been asked for more for a while. The offset is that of the next record.
type Ender interface {
	Ends() map[TopicPartition]int64
}

// Single is the ability of a sink to write one record per request, so that of several records that fail
// together the culprit can be told.
type Single interface {
	Single(on bool)
}

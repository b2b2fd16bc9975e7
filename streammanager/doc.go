// Package streammanager builds and runs a stream: it reads events from a source, keys them, gathers
// them into batches, hands the batches to a bounded pool of workers, writes the outputs in the order
// of their key, and commits what is finished.
//
// It owns everything between a source and a sink: lanes, windows, limits, tries, outcomes, offsets and the
// metrics of these. It leaves to others what lies behind the interfaces Source and Sink (package kafka,
// package file), how windows and lanes work (package window), what functions do, and how a stream is
// written down (package pipeline, whose files become a Builder).
//
// # A stream
//
//	s, err := streammanager.New(streammanager.Config{Name: "titles", Workers: 8}).
//		From(source).
//		PartitionBy(byPage).
//		Window(window.Config{Count: 100, Timeout: 50 * time.Millisecond}).
//		Process(streammanager.Step{Name: "measure", Func: measure}).
//		To(sink).
//		ErrorsTo(errorSink, nil).
//		Build() // checks everything, opens nothing
//	if err == nil {
//		err = s.Run(ctx) // until ctx ends, the source ends or something fails for good
//	}
//
// The Example has it in full. A source or sink says by further interfaces, such as Committer or Checker,
// what else it can do; what it lacks the stream does without.
//
// # Goroutines
//
// New and Build start none. Run starts all of them and returns after they have ended:
//
//   - the loop, on Run's own goroutine: it owns lanes, windows, trackers and limits, and never blocks;
//   - the reader, which alone polls the source, copies records, asks the filter and finds keys;
//   - the workers of the pool, up to Config.Workers, which run functions and make records;
//   - the emitter, which alone produces;
//   - the committer, which alone commits;
//   - with a repartition topic, while a tombstone waits before it, one that asks the source whether the group has
//     finished what is in the topic.
//
// The reader works on a grant of the loop and answers it; the others take and send messages through
// mailboxes that never block a sender. A worker writes its results into the call it was given, which the
// loop reads after it was sent back. What does not return when its context ends, be it a function, a
// filter or a source, is named in the log and left behind.
//
// # Ownership
//
// Records of a poll belong to the source until the next one; the reader copies what is kept, in one
// piece. The event as it was read is never handed out writable: functions get copies, or share its bytes
// where they promise to be ReadOnly. A partition's assignment is an epoch: what comes of an ended one is
// neither sent nor committed.
package streammanager

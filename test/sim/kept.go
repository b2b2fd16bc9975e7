package sim

// Kept lists seeds that have found a fault, and which. They run with every test. Each fault has a test of its own
// too, since a change of what is drawn makes other plans of them.
func Kept() map[uint64]string {
	return map[uint64]string{
		36:    "a sink that had written to the new topic only numbered its records there anew: brokers took them for repeated ones, and they were lost",
		279:   "an event was sent whose partition was lost while the sink was asked what it takes",
		781:   "what out_of_range passed over was not committed until the next record came",
		3691:  "the end of a transaction waited for a rebalance until the brokers had aborted it, and its worker was fenced off",
		9258:  "what stood behind the event that ends the stream left before it, without calls",
		13625: "a stop waited for a stream that was ending by itself, longer than shutdown_timeout",
		4155:  "one event took all workers with calls that do not return: a function had made several of it",
	}
}

// Package sim runs whole streams against a Kafka broker in memory, on virtual time, from a seed.
//
// From the seed it draws a Plan: topics, keys, events with the outcome that each must have, the stream's
// settings, and a schedule of faults. Run carries it out: kfake on its VirtualNetwork, functions in memory
// that answer late, ask to be called again, panic or hang as the plan says, and one to three workers, each
// a real stream over the real kafka source and sink. Both ends of every stream are tapped, so that the
// Ledger knows what each worker was given, called, sent and committed, and checks the promises of the
// design while it happens. When the schedule is over all faults end, the simulator waits until the
// group's committed offsets are at the ends of the log, and reads both output topics back.
//
// Run must be called inside a testing/synctest bubble. It starts goroutines and returns after all of them
// have ended. The package leaves to others what kfake does not do; docs/simulation.md lists it.
//
// A seed fixes workload and schedule. What happens at one and the same virtual instant is still ordered by
// Go's scheduler, so a rare interleaving may need `-count` to come again.
package sim

// Package streammanager builds and runs a stream: it reads events from a source, keys them, gathers
// them into batches, hands the batches to a bounded pool of workers, writes the outputs in the order
// of their key, and commits what is finished.
package streammanager

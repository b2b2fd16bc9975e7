// Package kafka connects a stream to Apache Kafka: a source that is a member of a consumer group, a sink
// with an idempotent producer, and a broker inside the process for trying things out.
//
// It is the only importer of the Kafka client. It leaves order, batches and what may be committed to
// package streammanager; it owns the client's goroutines, which end with Close.
package kafka

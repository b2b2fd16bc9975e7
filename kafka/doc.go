// Package kafka reads from and writes to Apache Kafka: a Source that is a member of a consumer group,
// a Sink that writes idempotently, a Transaction that binds both together where each output is to be seen once,
// and an Embedded broker for trying things out.
//
// It owns everything that speaks the protocol: connections, TLS and logging in, client settings by
// Kafka's own names, the assignment of partitions, where a topic is begun, positions, and the size
// limits of topics. What becomes of a record is the business of streammanager.
//
// Goroutines: those of the client library between Open and Close, and some that Close waits for. In a Source
// one looks after its topics, its group and what stands still, one says, until the group is joined, that it is
// waited for, and one more keeps a repartition topic; in a Sink one looks after the sizes that topics take, one
// after topics that were made again, and where events name their topics one after those that do not exist. Calls
// to streammanager.Assignments come from the library's goroutines, from Poll, and from the one that finds that a
// topic was made again, one at a time. Poll alone has the library go on elsewhere in a partition.
//
//	src, err := kafka.NewSource(kafka.SourceConfig{
//		Connection: kafka.Connection{Brokers: []string{"127.0.0.1:9092"}},
//		Topics:     []string{"page_change"},
//		Group:      "page-content",
//	}, slog.Default())
package kafka

// Package kafka reads from and writes to Apache Kafka: a Source that is a member of a consumer group,
// a Sink that writes idempotently, and an Embedded broker for trying things out.
//
// It owns everything that speaks the protocol: connections, TLS and logging in, client settings by
// Kafka's own names, the assignment of partitions, where a topic is begun, positions, and the size
// limits of topics. What becomes of a record is the business of streammanager.
//
// Goroutines: those of the client library between Open and Close, and one in each Source and Sink that
// looks after its topics, which Close waits for. Calls to streammanager.Assignments come from the
// library's goroutines and from Poll, one at a time.
//
//	src, err := kafka.NewSource(kafka.SourceConfig{
//		Connection: kafka.Connection{Brokers: []string{"127.0.0.1:9092"}},
//		Topics:     []string{"page_change"},
//		Group:      "page-content",
//	}, slog.Default())
package kafka

package kafka

// cures answers settings that people bring from elsewhere.
var cures = map[string]string{
	"auto.offset.reset":                     "write start: where to begin without a committed offset, and out_of_range: where to go on when it is gone",
	"enable.auto.commit":                    "leave it out: offsets are committed when their events are finished, never by a timer alone",
	"auto.commit.interval.ms":               "write commit_interval at the top of the file",
	"group.id":                              "write source.kafka.group",
	"bootstrap.servers":                     "write brokers",
	"enable.idempotence":                    "leave it out: records are always written idempotently",
	"retries":                               "leave it out: a record is tried until it is written",
	"delivery.timeout.ms":                   "leave it out: a record has no time limit, it is tried until it is written",
	"max.in.flight.requests.per.connection": "leave it out: the client keeps the order of records by itself",
	"batch.size":                            "leave it out: a batch may be as large as its topic allows, and linger.ms says how long it gathers; a bound here would refuse larger records",
	"max.poll.records":                      "write limits.in_flight_events: what is read follows the room there is",
	"key.serializer":                        "leave it out: keys and values are bytes",
	"value.serializer":                      "leave it out: keys and values are bytes",
	"key.deserializer":                      "leave it out: keys and values are bytes",
	"value.deserializer":                    "leave it out: keys and values are bytes",
	"partitioner.class":                     "write partitioner beside the topic",
	"transactional.id":                      "write transactional_id at the top of the file",
	"security.protocol":                     "write tls and sasl beside brokers",
	"default.api.timeout.ms":                "write request.timeout.ms",
	"exclude.internal.topics":               "leave it out: a regular expression never finds internal topics",
	"max.block.ms":                          "leave it out: the pipeline waits until there is room",
	"reconnect.backoff.ms":                  "leave it out: the client waits longer from try to try by itself",
	"retry.backoff.ms":                      "leave it out: the client waits longer from try to try by itself",
	"group.protocol":                        "leave it out: the classic protocol with cooperative-sticky is used",
}

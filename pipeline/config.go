package pipeline

import (
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/gateway"
	"github.com/a0c75104/enricher/secrets"
)

// config is a pipeline file. The tags of its fields are the one declaration of each key: yaml is its
// name, doc its line in the docs, default its text when left out, and required, enum and min what they
// say; refuse is a value that people will try in vain, for a map any single one, and why the reason.
type config struct {
	Name            string             `yaml:"name" required:"true" doc:"name of the job, label of its metrics, and consumer group unless source.kafka.group says otherwise"`
	Kafka           connection         `yaml:"kafka" doc:"connection of every kafka: below that does not say otherwise"`
	Source          sourceEnd          `yaml:"source" required:"true" doc:"where events come from"`
	Filter          functions.Expr     `yaml:"filter" doc:"keeps the events for which it is truthy; an error in it is an error event"`
	Tombstones      string             `yaml:"tombstones" default:"pass" enum:"pass|drop|error" doc:"what becomes of events whose value is null"`
	PartitionBy     partitionBy        `yaml:"partition_by" doc:"what orders events: a path, a list of paths, or {fields, missing}; left out: the record key"`
	Repartition     *repartition       `yaml:"repartition" doc:"leads the events through a topic of Kafka, keyed by partition_by, so that order and windows of a key hold over all workers, and a one-partition input is shared by many; the functions see the events as they were"`
	Window          *windowConfig      `yaml:"window" doc:"how events are gathered into mini-batches: the calls of one window run side by side, the next events of their keys wait until they are done; left out: each event at once, so that a key has one call at a time"`
	Workers         int                `yaml:"workers" default:"64" min:"1" doc:"calls in progress at most"`
	Order           string             `yaml:"order" default:"key" enum:"key|key_serial|none" doc:"key: results of a key leave in the order its events came; key_serial: calls for one key never overlap either, also within a window; none: as they complete"`
	Process         []item             `yaml:"process" doc:"the functions that each event goes through, in order"`
	Sink            sink               `yaml:"sink" required:"true" doc:"where results go"`
	ErrorSink       *errorSink         `yaml:"error_sink" doc:"where error events go"`
	OnError         string             `yaml:"on_error" enum:"stop|drop" doc:"what an error event means without an error_sink; stop, the default: the pipeline ends with status 1; drop: it is counted, logged and dropped"`
	Limits          limits             `yaml:"limits" doc:"bounds of what is read and not finished"`
	Delivery        string             `yaml:"delivery" default:"at_least_once" enum:"at_least_once|exactly_once" doc:"exactly_once: outputs, error events and offsets are committed together in transactions of one Kafka cluster, and readers with isolation.level read_committed see each once; other readers also see what was aborted"`
	TransactionalID string             `yaml:"transactional_id" doc:"name of this worker's transactions, with exactly_once: of this worker alone, and the same after a restart; left out: the group and instance"`
	Instance        string             `yaml:"instance" doc:"name of this worker, which stays over a restart: a StatefulSet's ${HOSTNAME}, YARN's ${COMPONENT_INSTANCE_NAME}; never a container's id, which changes; left out: a random one, which exactly_once refuses"`
	CommitInterval  functions.Duration `yaml:"commit_interval" default:"1s" min:"1ms" doc:"time between commits of finished offsets, and the length of a transaction with exactly_once"`
	ShutdownTimeout functions.Duration `yaml:"shutdown_timeout" default:"30s" min:"1ms" doc:"time to finish when stopped; what is unfinished then is read again"`
	Restart         restart            `yaml:"restart" why:"a restart cannot be switched off: write {attempts: 1}, the least, for a single start after failures in a row" doc:"what happens after a failure of the pipeline; never for an error event or what is for good: on_error: stop, event.Fatal, out_of_range: fail, errors of a file, an error event that its sink refuses though it was cut, all workers taken by calls that do not return, a third failure in a row at one offset"`
	Gateway         gatewayConfig      `yaml:"gateway" doc:"the HTTP server of the process: health, metrics and control"`
}

// connection says how to reach Kafka.
type connection struct {
	Brokers []string         `yaml:"brokers" doc:"list of host:port; embedded: a broker inside the process, on loopback, for trying things out"`
	DataDir string           `yaml:"data_dir" doc:"directory in which the embedded broker keeps its data; left out: in memory"`
	TLS     *secrets.TLS     `yaml:"tls" doc:"true, or {ca_file, cert_file, key_file, server_name, insecure_skip_verify}"`
	SASL    *saslConfig      `yaml:"sasl" doc:"how to log in"`
	Options map[string]value `yaml:"options" doc:"client settings by Kafka's own names, such as fetch.max.bytes or linger.ms"`
}

// saslConfig says how to log in to Kafka.
type saslConfig struct {
	Mechanism    string           `yaml:"mechanism" required:"true" enum:"PLAIN|SCRAM-SHA-256|SCRAM-SHA-512|OAUTHBEARER" refuse:"GSSAPI" why:"Kerberos is not supported: use SCRAM-SHA-512, or OAUTHBEARER, on a listener of the cluster that offers it" doc:"how the password or token is proved"`
	Username     string           `yaml:"username" doc:"name of the user, or the client id for OAUTHBEARER"`
	Password     functions.Secret `yaml:"password" doc:"password, or client secret for OAUTHBEARER"`
	PasswordFile string           `yaml:"password_file" doc:"file that holds the password; it is read again when it changes"`
	TokenURL     string           `yaml:"token_url" doc:"where OAUTHBEARER gets its tokens"`
	TokenFile    string           `yaml:"token_file" doc:"file that holds a token for OAUTHBEARER, in place of token_url; it is read again for each login"`
	Scope        string           `yaml:"scope" doc:"scope that a token is asked for"`
}

type sourceEnd struct {
	Kafka *kafkaSource `yaml:"kafka" doc:"topics of Kafka"`
	File  *fileEnd     `yaml:"file" doc:"JSON lines from a file; the pipeline ends at its end"`
}

type kafkaSource struct {
	connection `yaml:",inline"`
	Topics     topics `yaml:"topics" required:"true" doc:"list of topics, or a regular expression between slashes, which matches whole names"`
	Group      string `yaml:"group" doc:"consumer group; left out: the pipeline's name"`
	Start      start  `yaml:"start" doc:"where to begin without a committed offset: earliest, the default, latest, or the first record of a time or later: RFC 3339, milliseconds since 1970, or an age such as -24h"`
	Until      value  `yaml:"until" doc:"where to end: latest, or a time as in start; fixed for each partition at the first start; left out: never"`
	OutOfRange string `yaml:"out_of_range" default:"earliest" enum:"earliest|latest|fail" doc:"where to go on when the committed offset is no longer there"`
}

type fileEnd struct {
	Path   string `yaml:"path" required:"true" doc:"the file; - is stdin or stdout"`
	Format string `yaml:"format" default:"json_lines" enum:"json_lines" doc:"one JSON text per line"`
}

type sink struct {
	Kafka *kafkaSink `yaml:"kafka" doc:"a topic of Kafka"`
	File  *fileEnd   `yaml:"file" doc:"JSON lines to a file"`
}

type kafkaSink struct {
	connection  `yaml:",inline"`
	Topic       functions.Template `yaml:"topic" required:"true" doc:"topic, a template; an event is rejected where it names a topic that the source reads, or one that brokers say for 10s does not exist, while error events and a fixed topic wait for theirs"`
	Key         functions.Expr     `yaml:"key" doc:"jq of the record key: text is the raw key, null none, anything else JSON; left out: the key of the input"`
	Timestamp   string             `yaml:"timestamp" default:"source" enum:"source|now" doc:"time of the record: that of the input, or now"`
	Partitioner string             `yaml:"partitioner" default:"murmur2" enum:"murmur2" doc:"how a key finds its partition: as Java's clients do"`
}

type errorSink struct {
	sink   `yaml:",inline"`
	Format string `yaml:"format" default:"record" enum:"record|event_platform" doc:"record: the input as it came, with enricher.error.* headers; event_platform: an error document of Wikimedia's event platform, and the headers"`
	Stream string `yaml:"stream" doc:"meta.stream of an event_platform document"`
}

type repartition struct {
	Topic      string `yaml:"topic" required:"true" doc:"topic on the cluster of the source that this job alone uses; it is made where it does not exist, else held to unlimited retention and no compaction; what is finished is deleted from it"`
	Partitions int    `yaml:"partitions" required:"true" min:"1" doc:"partitions that the topic is made with: some for each worker that there may ever be; an existing topic may have more"`
}

type windowConfig struct {
	Count   int                `yaml:"count" min:"1" doc:"closes at so many events"`
	Bytes   functions.Size     `yaml:"bytes" min:"1B" doc:"closes at so many bytes"`
	Timeout functions.Duration `yaml:"timeout" min:"1ms" doc:"closes so long after its first event"`
	By      functions.Expr     `yaml:"by" doc:"jq of what events share a window; left out: the key"`
	Eager   bool               `yaml:"eager" default:"false" doc:"closes too when a worker is idle"`
}

type limits struct {
	InFlightEvents    int            `yaml:"in_flight_events" default:"10000" min:"1" doc:"events that are read and not finished"`
	InFlightBytes     functions.Size `yaml:"in_flight_bytes" default:"64MiB" min:"1B" doc:"bytes of them, of answers while calls hold them, and of outputs until they are acknowledged; one answer may stand over it"`
	UncommittedEvents int            `yaml:"uncommitted_events" default:"100000" min:"1" doc:"events of one partition between its committed offset and its newest read one"`
}

type restart struct {
	Initial    functions.Duration `yaml:"initial" default:"1s" min:"1ms" doc:"wait before the pipeline is started again; it doubles with each failure in a row, and up to half of it is left out at random"`
	Max        functions.Duration `yaml:"max" default:"60s" min:"1ms" doc:"longest wait"`
	ResetAfter functions.Duration `yaml:"reset_after" default:"5m" min:"1ms" doc:"a run of that length ends the row of failures"`
	Attempts   int                `yaml:"attempts" default:"0" min:"0" doc:"starts after failures in a row, 0: for ever; then the pipeline ends with status 1"`
}

type gatewayConfig struct {
	Listen        string             `yaml:"listen" default:"127.0.0.1:8081" doc:"address of /healthz, /readyz, /metrics and the control of the jobs; left out, it gives way to a free port when it is taken; one that other machines reach needs token_file, tls with client_ca_file, insecure: true, or control: off"`
	Advertise     string             `yaml:"advertise" doc:"host[:port] under which others reach the gateway, where that is not the address it listens at; requests may be sent to that host"`
	Control       string             `yaml:"control" default:"on" enum:"on|off" doc:"off leaves /healthz, /readyz and /metrics"`
	StoreDuration functions.Duration `yaml:"store_duration" default:"5m" min:"1s" doc:"how long the result of an operation, such as a stop, can be asked for after its end; the process waits as long for it to be fetched before it ends"`
	Dashboard     string             `yaml:"dashboard" doc:"directory with the files of Flink's web dashboard, served at /"`
	TokenFile     string             `yaml:"token_file" doc:"file that holds the token with which the jobs may be changed, and read; it is read again when it changes"`
	ReadTokenFile string             `yaml:"read_token_file" doc:"file that holds a token with which the jobs may be read only"`
	TLS           *gateway.TLS       `yaml:"tls" doc:"serves HTTPS; the files are read again when they change"`
	Insecure      bool               `yaml:"insecure" default:"false" doc:"lets anybody who reaches the address change the jobs without a token"`
}

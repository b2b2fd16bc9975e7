package pipeline

import (
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/kafka"
)

// embedded is the name of the broker inside the process.
const embedded = "embedded"

// or fills what c leaves out from the default connection. A connection with brokers of its own is
// another cluster, to which the default's credentials do not go.
func (c connection) or(def connection) connection {
	if len(c.Brokers) == 0 {
		c.Brokers = def.Brokers
		if !c.TLS.given {
			c.TLS = def.TLS
		}
		if c.SASL == nil {
			c.SASL = def.SASL
		}
		if c.DataDir == "" {
			c.DataDir = def.DataDir
		}
	}
	options := maps.Clone(def.Options)
	if options == nil {
		options = map[string]value{}
	}
	maps.Copy(options, c.Options)
	c.Options = options
	return c
}

func (c connection) embedded() bool { return slices.Equal(c.Brokers, []string{embedded}) }

// connection checks one connection by itself.
func (c *checker) connection(path string, conn connection) {
	if c.values[path] == nil || c.fault(path) {
		return
	}
	at := func(key string) string { return join(path, key) }
	for i, b := range conn.Brokers {
		where := index(at("brokers"), i)
		if c.values[where] == nil {
			where = at("brokers")
		}
		host, port, err := net.SplitHostPort(b)
		n, perr := strconv.Atoi(port)
		switch {
		case b == embedded && len(conn.Brokers) > 1:
			c.problem(where, "embedded stands alone")
		case b != embedded && (err != nil || host == "" || perr != nil || n < 1 || n > 65535):
			c.problem(where, "%q is no host:port", b)
		}
	}
	if conn.embedded() {
		if conn.TLS.On {
			c.problem(at("tls"), "the embedded broker speaks no TLS")
		}
		if conn.SASL != nil {
			c.problem(at("sasl"), "the embedded broker asks for no login")
		}
		return
	}
	if conn.DataDir != "" && len(conn.Brokers) > 0 {
		c.problem(at("data_dir"), "belongs to brokers: embedded")
	}
	c.sasl(at("sasl"), conn.SASL)
}

// sasl checks what a mechanism needs.
func (c *checker) sasl(path string, s *saslConfig) {
	if s == nil || c.fault(path) {
		return
	}
	if s.Mechanism == "OAUTHBEARER" && s.TokenFile != "" {
		if s.TokenURL != "" {
			c.problem(join(path, "token_file"), "is given beside token_url: keep one")
		}
		return
	}
	if s.Username == "" {
		c.problem(join(path, "username"), "is required by %s", s.Mechanism)
	}
	switch {
	case !s.Password.IsZero() && s.PasswordFile != "":
		c.problem(join(path, "password_file"), "is given beside password: keep one")
	case s.Password.IsZero() && s.PasswordFile == "":
		c.problem(join(path, "password"), "is required: write ${NAME} to take it from the environment, or give password_file")
	}
	if s.Mechanism == "OAUTHBEARER" && s.TokenURL == "" {
		c.problem(join(path, "token_url"), "is required by OAUTHBEARER, or give token_file")
	}
	if s.Mechanism != "OAUTHBEARER" && (s.TokenURL != "" || s.TokenFile != "" || s.Scope != "") {
		c.problem(path, "token_url, token_file and scope belong to OAUTHBEARER")
	}
}

// block checks one kafka: block of a source or sink. It reports whether the client can be made of it.
func (c *checker) block(path string, conn connection, side kafka.Side) bool {
	c.connection(path, conn)
	c.checkOptions(path, conn, side)
	if len(conn.or(c.cfg.Kafka).Brokers) == 0 && !c.fault(path) && !c.fault("kafka") {
		c.problem(join(path, "brokers"), "is required: write brokers here, or once under kafka: at the top")
	}
	return !c.fault(path) && !c.fault("kafka")
}

// ends checks the connections, and then makes each client, unopened, to see what it finds fault with.
func (c *checker) ends(a *assembly) {
	c.connection("kafka", c.cfg.Kafka)
	c.checkOptions("kafka", c.cfg.Kafka, kafka.SourceSide, kafka.SinkSide)
	if k := c.cfg.Source.Kafka; k != nil && c.block("source.kafka", k.connection, kafka.SourceSide) {
		_, err := a.kafkaSource(k)
		c.client("source.kafka", err)
	}
	c.sink("sink.kafka", c.cfg.Sink.Kafka, a, false)
	if e := c.errorSink(); e != nil {
		c.sink("error_sink.kafka", e.Kafka, a, true)
	}
}

func (c *checker) sink(path string, k *kafkaSink, a *assembly, errors bool) {
	if k == nil || !c.block(path, k.connection, kafka.SinkSide) {
		return
	}
	if topic, ok := k.literalTopic(); ok && !topicName.MatchString(topic) {
		c.problem(join(path, "topic"), "%q is no name of a topic", topic)
	}
	if errors && !k.Topic.Literal() && k.Topic.ReadsValue() {
		c.problem(join(path, "topic"), "reads the value, and that of an error event may be anything: use $topic, or $key or $headers with a default")
	}
	if errors {
		if err := k.Topic.CheckDefaults("key", "headers"); err != nil {
			c.optionProblem(path, &functions.OptionError{Option: "topic", Err: err})
		}
	}
	if errors && !k.Key.IsZero() && k.Key.ReadsValue() {
		c.problem(join(path, "key"), "reads the value, and that of an error event may be anything: use $key, $topic or $headers")
	}
	_, err := a.kafkaSink(k, errors)
	c.client(path, err)
}

// client reports what a client found fault with that no rule above did.
func (c *checker) client(path string, err error) {
	if err == nil || c.fault(path) {
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			c.problem(path, "%v", one)
		}
		return
	}
	c.problem(path, "%v", err)
}

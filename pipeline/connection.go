package pipeline

import (
	"errors"
	"maps"
	"slices"
	"strings"

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
		if c.TLS == nil {
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
		if b != embedded {
			c.settings(where, kafka.CheckBroker(b))
		} else if len(conn.Brokers) > 1 {
			c.problem(where, "embedded stands alone")
		}
	}
	if conn.embedded() {
		if conn.encryption() != nil {
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
	if !c.fault(at("tls")) {
		c.settings(path, kafka.CheckTLS(conn.encryption()))
	}
	if !c.fault(at("sasl")) {
		c.settings(path, conn.SASL.client().Check())
	}
}

// encryption returns what the client is told of TLS, nil where there is none.
func (c connection) encryption() *kafka.TLS {
	if c.TLS == nil || c.TLS.Off {
		return nil
	}
	return c.TLS
}

// client returns what s says to the client, nil where that is nothing.
func (s *saslConfig) client() *kafka.SASL {
	if s == nil {
		return nil
	}
	return &kafka.SASL{
		Mechanism: s.Mechanism, Username: s.Username, Password: s.Password.Reveal(), PasswordFile: s.PasswordFile,
		TokenURL: s.TokenURL, TokenFile: s.TokenFile, Scope: s.Scope,
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

func (c *checker) sink(path string, k *kafkaSink, a *assembly, forErrors bool) {
	if k == nil || !c.block(path, k.connection, kafka.SinkSide) {
		return
	}
	if forErrors && !k.Topic.Literal() && k.Topic.ReadsValue() {
		c.problem(join(path, "topic"), "reads the value, and that of an error event may be anything: use $topic, or $key or $headers with a default")
	}
	if forErrors {
		if err := k.Topic.CheckDefaults("key", "headers"); err != nil {
			c.optionProblem(path, &functions.OptionError{Option: "topic", Err: err})
		}
	}
	if forErrors && !k.Key.IsZero() && k.Key.ReadsValue() {
		c.problem(join(path, "key"), "reads the value, and that of an error event may be anything: use $key, $topic or $headers")
	}
	_, err := a.kafkaSink(k, forErrors)
	c.client(path, err)
}

// client reports what a client found fault with that no rule above did.
func (c *checker) client(path string, err error) {
	if !c.fault(path) {
		c.settings(path, err)
	}
}

// settings reports err, or each of several, at the setting of path that it names, or at that of the default
// connection from which the setting came.
func (c *checker) settings(path string, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			c.settings(path, one)
		}
		return
	}
	if named, ok := errors.AsType[*kafka.KeyError](err); ok {
		at, above := strings.TrimPrefix(path+"."+named.Key, "."), "kafka."+named.Key
		if c.values[at] == nil && c.values[above] != nil {
			at = above
		}
		path, err = at, named.Err
	}
	if err != nil {
		c.problem(path, "%v", err)
	}
}

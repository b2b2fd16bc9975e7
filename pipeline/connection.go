package pipeline

import (
	"maps"
	"net"
	"slices"
	"strconv"
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
	} else if conn.DataDir != "" {
		c.problem(at("data_dir"), "belongs to brokers: embedded")
	}
}

// reachable checks that a kafka: block has brokers, of its own or by default.
func (c *checker) reachable(path string, conn connection) {
	if len(conn.or(c.cfg.Kafka).Brokers) == 0 && !c.fault(path) && !c.fault("kafka") {
		c.problem(join(path, "brokers"), "is required: write brokers here, or once under kafka: at the top")
	}
}

// ends checks the connections and the parts made of them.
func (c *checker) ends() {
	c.connection("kafka", c.cfg.Kafka)
	if k := c.cfg.Source.Kafka; k != nil {
		c.connection("source.kafka", k.connection)
		c.reachable("source.kafka", k.connection)
	}
	if k := c.cfg.Sink.Kafka; k != nil {
		c.connection("sink.kafka", k.connection)
		c.reachable("sink.kafka", k.connection)
	}
	if e := c.errorSink(); e != nil && e.Kafka != nil {
		c.connection("error_sink.kafka", e.Kafka.connection)
		c.reachable("error_sink.kafka", e.Kafka.connection)
	}
}

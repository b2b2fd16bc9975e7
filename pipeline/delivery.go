package pipeline

import (
	"strconv"
	"time"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

const (
	exactlyOnce        = "exactly_once"
	transactionTimeout = kafka.TransactionTimeout
	quickEnough        = 20 * time.Second
)

func (c *config) exactlyOnce() bool { return c.Delivery == exactlyOnce }

// transactionTimeout is after how long brokers abort a transaction.
func (c *config) transactionTimeout() time.Duration {
	given := string(c.Kafka.Options[transactionTimeout])
	if k := c.Sink.Kafka; k != nil {
		given = string(k.connection.or(c.Kafka).Options[transactionTimeout])
	}
	if n, err := strconv.ParseInt(given, 10, 32); err == nil && n > 0 {
		return time.Duration(n) * time.Millisecond
	}
	return time.Minute
}

// transactionalID names this worker to the brokers.
func (c *config) transactionalID() string {
	if c.TransactionalID != "" || c.Instance == "" {
		return c.TransactionalID
	}
	return c.group() + "-" + c.Instance
}

// group is the consumer group of the source.
func (c *config) group() string {
	if k := c.Source.Kafka; k != nil && k.Group != "" {
		return k.Group
	}
	return c.Name
}

// quicken shortens the times of calls that are left out, so that they fit into a transaction.
func (d *decoder) quicken(cfg *config) {
	if !cfg.exactlyOnce() {
		return
	}
	for i := range cfg.Process {
		it := &cfg.Process[i]
		o, ok := it.options.(*asynchttp.Options)
		if !ok || d.values[join(it.place(), "total_timeout")] != nil {
			continue
		}
		o.TotalTimeout = functions.Duration(cfg.quickEnough())
		if d.values[join(it.place(), "timeout")] == nil {
			o.Timeout = min(o.Timeout, o.TotalTimeout)
		}
	}
}

// quickEnough is how long an event may take in one function, in a transaction, where nothing else is said: all functions
// together have a third of the transaction's time, so that what hangs fails before the transaction is aborted at half.
func (c *config) quickEnough() time.Duration {
	calls := time.Duration(0)
	for i := range c.Process {
		if c.Process[i].calls() {
			calls++
		}
	}
	return min(quickEnough, (c.transactionTimeout() / 3 / max(calls, 1)).Truncate(10*time.Millisecond))
}

// calls reports whether the function of it may wait for something.
func (it *item) calls() bool {
	_, http := it.options.(*asynchttp.Options)
	return it.found && (http || !builtin(it.spec.Name()))
}

// mayTake is how long one event may take in the function of it, in a transaction.
func (c *config) mayTake(it *item) time.Duration {
	if o, ok := it.options.(*asynchttp.Options); ok {
		return o.TotalTimeout.Duration()
	}
	if it.Timeout == 0 && it.calls() {
		return c.quickEnough()
	}
	return it.Timeout.Duration()
}

// delivery finds what exactly_once cannot hold.
func (c *checker) delivery(a *assembly) {
	cfg := c.cfg
	if c.fault("delivery") {
		return
	}
	if !cfg.exactlyOnce() {
		c.atLeastOnce()
		return
	}
	c.noFiles()
	if cfg.TransactionalID == "" && cfg.Instance == "" && !c.fault("instance") && !c.fault("transactional_id") {
		c.problem("delivery", "exactly_once needs instance, a name of this worker that stays over a restart, or transactional_id: "+
			"else nobody ends the transaction that a killed worker leaves open; write instance: ${HOSTNAME} in a StatefulSet, ${COMPONENT_INSTANCE_NAME} on YARN")
	}
	c.oneClient(a)
	c.times()
}

// atLeastOnce refuses what belongs to transactions.
func (c *checker) atLeastOnce() {
	if c.cfg.TransactionalID != "" {
		c.problem("transactional_id", "belongs to delivery: exactly_once: write that too, or leave it out")
	}
	for _, path := range []string{"kafka", "sink.kafka", "error_sink.kafka"} {
		at := join(join(path, "options"), transactionTimeout)
		if c.values[at] != nil && !c.fault(at) {
			c.problem(at, "belongs to delivery: exactly_once: write that too, or leave it out")
		}
	}
}

func (c *checker) noFiles() {
	const why = "exactly_once binds positions and outputs into transactions of one Kafka cluster, which a file takes no part in: use topics, or delivery: at_least_once"
	if c.cfg.Source.File != nil {
		c.problem("source.file", why)
	}
	if c.cfg.Sink.File != nil {
		c.problem("sink.file", why)
	}
	if e := c.errorSink(); e != nil && e.File != nil {
		c.problem("error_sink.file", why)
	}
}

// oneClient holds the sinks to the client of the source.
func (c *checker) oneClient(a *assembly) {
	src := c.cfg.Source.Kafka
	if src == nil || c.fault("source.kafka") || c.fault("kafka") {
		return
	}
	from, err := a.kafkaConnection(src.connection, kafka.SourceSide)
	if err != nil {
		return
	}
	var first *kafka.Connection
	check := func(path string, s *sink) {
		if s == nil || s.Kafka == nil || c.fault(path) {
			return
		}
		to, err := a.kafkaConnection(s.Kafka.connection, kafka.SinkSide)
		if err != nil {
			return
		}
		err = kafka.SameClient(&from, &to)
		if err == nil && first != nil {
			err = kafka.SameWriter(first, &to)
		}
		c.settings(path, err)
		first = &to
	}
	check("sink.kafka", &c.cfg.Sink)
	check("error_sink.kafka", c.errorSink())
}

// times holds what one event may take to what a transaction has.
func (c *checker) times() {
	cfg, whole := c.cfg, c.cfg.transactionTimeout()
	half := whole / 2
	const cure = "a transaction that is not finished at half of transaction.timeout.ms is aborted: lower it, or raise transaction.timeout.ms under sink.kafka.options"
	sum, fault := time.Duration(0), false
	for i := range cfg.Process {
		it := &cfg.Process[i]
		if !it.found || c.fault(it.path) {
			fault = true
			continue
		}
		before := len(c.problems)
		_, ok := it.options.(*asynchttp.Options)
		took := cfg.mayTake(it)
		switch total := join(it.place(), "total_timeout"); {
		case ok && c.values[total] != nil && took == 0:
			c.problem(total, "0, no bound, does not fit into a transaction: %s", cure)
		case ok && c.values[total] != nil && took >= half:
			c.problem(total, "%v is not shorter than %v: %s", took, half, cure)
		case it.Timeout.Duration() >= half:
			c.problem(join(it.path, "timeout"), "%v is not shorter than %v: %s", it.Timeout, half, cure)
		}
		sum, fault = sum+took, fault || len(c.problems) > before
	}
	if !fault && sum >= half {
		c.problem("process", "an event may take %v in all functions together, which is not shorter than %v: a transaction that is not finished at half of transaction.timeout.ms is aborted: "+
			"shorten total_timeout and timeout of the functions, or raise transaction.timeout.ms under sink.kafka.options", sum, half)
	}
	if w := cfg.Window; w != nil && w.Timeout.Duration() > half && !c.fault("window") {
		c.problem("window.timeout", "%v is longer than %v: %s", w.Timeout, half, cure)
	}
	if cfg.CommitInterval.Duration() > whole/4 && !c.fault("commit_interval") {
		at := "commit_interval"
		if c.values[at] == nil {
			at = "delivery"
		}
		c.problem(at, "a commit_interval of %v is longer than a quarter of transaction.timeout.ms, %v, in which all of a transaction is to be read: lower it, or raise transaction.timeout.ms under sink.kafka.options",
			cfg.CommitInterval, whole/4)
	}
}

// transaction makes source and sinks over one client.
func (a *assembly) transaction(b *streammanager.Builder) error {
	cfg := &a.p.cfg
	src, err := a.kafkaSourceConfig(cfg.Source.Kafka)
	if err != nil {
		return err
	}
	tx := kafka.TransactionConfig{ID: cfg.transactionalID(), Source: src}
	if r := a.deps.replay; r != nil {
		tx.ID += r.suffix // or it would take the transactions of the job's own worker away
	}
	sinks := []*kafkaSink{cfg.Sink.Kafka}
	if e := cfg.ErrorSink; e != nil {
		sinks = append(sinks, e.Kafka)
	}
	for i, k := range sinks {
		c, err := a.kafkaSinkConfig(k, i > 0)
		if err != nil {
			return err
		}
		tx.Sinks = append(tx.Sinks, &c)
	}
	if a.through() != nil {
		c, err := a.repartitionSinkConfig()
		if err != nil {
			return err
		}
		c.Connection = tx.Sinks[0].Connection // which is of the source's cluster
		tx.Sinks = append(tx.Sinks, &c)
	}
	t, err := kafka.NewTransaction(tx, a.log)
	if err != nil {
		return err
	}
	b.From(a.replayed(t.Source())).To(t.Sink(0))
	if r := a.through(); r != nil {
		b.Repartition(r.Topic, t.Sink(len(tx.Sinks)-1))
	}
	if cfg.ErrorSink != nil {
		b.ErrorsTo(t.Sink(1), a.errorFormat())
	}
	return nil
}

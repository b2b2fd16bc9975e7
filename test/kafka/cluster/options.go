//go:build unix

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Options say what cluster to start. The zero value is one plain node.
type Options struct {
	// Nodes is 1 or 3; 0 is 1. With three, topics have three replicas, and two must acknowledge.
	Nodes int
	// Overrides are broker settings by Kafka's own names, over those of this package.
	Overrides map[string]string
	// Security is of the door for workers.
	Security Security
	// Proxy puts a Proxy in front of every node, at the address that the node advertises to workers.
	Proxy bool
}

// Security is that of the door for workers. The zero value is plain text and no login.
type Security struct {
	// TLS makes the nodes speak TLS, with a certificate for 127.0.0.1 that is made at the start.
	TLS bool
	// ClientCerts makes them ask for a certificate; see Cluster.Certificate. It needs TLS.
	ClientCerts bool
	// Users are passwords by name, for SCRAM-SHA-256.
	Users map[string]string
	// Reauth is how long a login holds (connections.max.reauth.ms). 0: as long as its connection.
	Reauth time.Duration
	// ACLs refuses what is not allowed by an ACL, save to the user "admin". It needs Users or ClientCerts.
	ACLs bool
}

// protocol is Kafka's name of it.
func (s Security) protocol() string {
	switch {
	case s.TLS && s.Users != nil:
		return "SASL_SSL"
	case s.TLS:
		return "SSL"
	case s.Users != nil:
		return "SASL_PLAINTEXT"
	}
	return "PLAINTEXT"
}

func (o Options) check() error {
	switch {
	case o.Nodes != 0 && o.Nodes != 1 && o.Nodes != 3:
		return fmt.Errorf("starting %d nodes: want 1 or 3", o.Nodes)
	case o.Security.ClientCerts && !o.Security.TLS:
		return fmt.Errorf("asking for client certificates without TLS: set Security.TLS")
	case o.Security.ACLs && o.Security.Users == nil && !o.Security.ClientCerts:
		return fmt.Errorf("checking rights of nobody: set Security.Users or ClientCerts beside ACLs")
	}
	return nil
}

// properties is a file of settings.
type properties map[string]string

func (p properties) String() string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&text, "%s=%s\n", name, p[name])
	}
	return text.String()
}

// propertiesOf returns the settings of a node.
func propertiesOf(o Options, n *Node, voters, folder string) properties {
	replicas, acks := 1, 1
	if o.Nodes == 3 {
		replicas, acks = 3, 2
	}
	p := properties{
		"process.roles": "broker,controller", "node.id": fmt.Sprint(n.ID), "log.dirs": folder,
		"controller.quorum.voters":       voters,
		"listeners":                      fmt.Sprintf("CLIENT://%s,DIRECT://%s,CONTROLLER://%s", n.behind, n.Direct, n.controller),
		"advertised.listeners":           fmt.Sprintf("CLIENT://%s,DIRECT://%s", n.Addr, n.Direct),
		"listener.security.protocol.map": "DIRECT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENT:" + o.Security.protocol(),
		"controller.listener.names":      "CONTROLLER",
		"inter.broker.listener.name":     "DIRECT",

		"default.replication.factor":                                  fmt.Sprint(replicas),
		"min.insync.replicas":                                         fmt.Sprint(acks),
		"offsets.topic.replication.factor":                            fmt.Sprint(replicas),
		"transaction.state.log.replication.factor":                    fmt.Sprint(replicas),
		"transaction.state.log.min.isr":                               fmt.Sprint(acks),
		"share.coordinator.state.topic.replication.factor":            fmt.Sprint(replicas),
		"share.coordinator.state.topic.min.isr":                       fmt.Sprint(acks),
		"auto.create.topics.enable":                                   "false",
		"offsets.topic.num.partitions":                                "4",
		"transaction.state.log.num.partitions":                        "4",
		"group.initial.rebalance.delay.ms":                            "0",
		"group.min.session.timeout.ms":                                "500",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
		"broker.session.timeout.ms":                                   "3000",
		"broker.heartbeat.interval.ms":                                "500",
		"log.cleaner.dedupe.buffer.size":                              "2097152",
		"log.cleaner.backoff.ms":                                      "500",
		"log.initial.task.delay.ms":                                   "500",
		"log.retention.check.interval.ms":                             "1000",
		"num.network.threads":                                         "1",
		"num.io.threads":                                              "2",
	}
	if o.Security.Users != nil {
		p["sasl.enabled.mechanisms"] = scram
		p["listener.name.client.scram-sha-256.sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	}
	if o.Security.Reauth > 0 {
		p["connections.max.reauth.ms"] = fmt.Sprint(o.Security.Reauth.Milliseconds())
	}
	if o.Security.ACLs {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		p["super.users"] = "User:ANONYMOUS;User:admin" // the nodes and the tests come in plain
	}
	maps.Copy(p, n.tls)
	maps.Copy(p, o.Overrides)
	return p
}

const scram = "SCRAM-SHA-256"

package pipeline

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/gateway"
)

// Gateway returns what the files say of the HTTP server of a process that runs the pipelines, and whether none of them
// names its address: then it is the default, which gives way to a free port when it is taken.
func Gateway(ps ...*Pipeline) (cfg gateway.Config, isDefault bool) {
	c, isDefault := gatewayOf(ps)
	return gateway.Config{
		Listen: c.Listen, Advertise: c.Advertise, ControlOff: c.Control == "off", Store: c.StoreDuration.Duration(), Dashboard: c.Dashboard, Access: c.access(),
	}, isDefault
}

// gatewayOf puts together what each of the files says: Together has found none that differ.
func gatewayOf(ps []*Pipeline) (c gatewayConfig, isDefault bool) {
	isDefault = true
	for i, p := range ps {
		if i == 0 {
			c = p.cfg.Gateway
		}
		isDefault = isDefault && !p.names("gateway.listen")
		own, to := fieldsOf(reflect.ValueOf(&p.cfg.Gateway).Elem()), fieldsOf(reflect.ValueOf(&c).Elem())
		for n, f := range own {
			if p.names(join("gateway", f.key)) {
				to[n].v.Set(f.v)
			}
		}
	}
	return c, isDefault
}

func (c *gatewayConfig) access() gateway.Access {
	return gateway.Access{TokenFile: c.TokenFile, ReadTokenFile: c.ReadTokenFile, TLS: c.TLS, Insecure: c.Insecure}
}

// names reports whether the file gives a key a value, be it the default's.
func (p *Pipeline) names(path string) bool {
	n := p.read.values[path]
	return n != nil && !p.read.fault(path) && (n.text != "" || len(n.vals) > 0) // ${…} of nothing is the default
}

// gateway finds what is wrong with the HTTP server.
func (c *checker) gateway() {
	g := &c.cfg.Gateway
	if c.fault("gateway") {
		return
	}
	if _, _, err := net.SplitHostPort(g.Listen); err != nil {
		c.problem("gateway.listen", "%q is no host:port", g.Listen)
		return
	}
	if a := g.Advertise; a != "" && !isHost(a) {
		c.problem("gateway.advertise", "%q is no host or host:port", a)
	}
	if err := g.access().Check(g.Listen); err != nil && g.Control != "off" {
		c.problem("gateway.listen", "%v", err)
	}
}

// isHost reports whether text is a host, with or without a port.
func isHost(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, "1"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && host != "" && !strings.ContainsAny(host, "/@ ")
}

// gateway finds keys of the HTTP server that differ from those of another file.
func (c *company) gateway(others []*Pipeline) {
	for _, f := range fieldsOf(reflect.ValueOf(&c.p.cfg.Gateway).Elem()) {
		path := join("gateway", f.key)
		if !c.p.names(path) {
			continue
		}
		for _, other := range others {
			if first := fieldOf(&other.cfg.Gateway, f.key); other.names(path) && !reflect.DeepEqual(first, f.v.Interface()) {
				c.differs(path, f.v.Interface(), first, other)
				break
			}
		}
	}
}

func fieldOf(c *gatewayConfig, key string) any {
	for _, f := range fieldsOf(reflect.ValueOf(c).Elem()) {
		if f.key == key {
			return f.v.Interface()
		}
	}
	return nil
}

func (c *company) differs(path string, own, first any, other *Pipeline) {
	if reflect.TypeOf(own).Kind() == reflect.Pointer { // a map: its keys are told with the file
		c.problem(path, "differs from that in %s: a process has one", other.File())
		return
	}
	c.problem(path, "%q differs from %q in %s: a process has one", fmt.Sprint(own), other.shown(path, fmt.Sprint(first)), other.File())
}

// Labels says what the stages of the pipeline are called, for those who look at the job.
func (p *Pipeline) Labels() gateway.Labels {
	l := gateway.Labels{Source: "events", Process: "pass", Sink: "events"}
	switch src := p.cfg.Source; {
	case src.Kafka != nil && src.Kafka.Topics.Regexp != "":
		l.Source = "/" + src.Kafka.Topics.Regexp + "/"
	case src.Kafka != nil:
		l.Source = strings.Join(src.Kafka.Topics.Names, ", ")
	case src.File != nil:
		l.Source = src.File.Path
	}
	var names []string
	for i := range p.cfg.Process {
		it := &p.cfg.Process[i]
		names = append(names, it.spec.Name())
		if it.Name != "" {
			names[i] = it.Name
		}
	}
	if len(names) > 0 {
		l.Process = strings.Join(names, ", ")
	}
	switch s := p.cfg.Sink; {
	case s.Kafka != nil:
		l.Sink = s.Kafka.Topic.String()
	case s.File != nil:
		l.Sink = s.File.Path
	}
	return l
}

// RestartText says what happens after a failure.
func (p *Pipeline) RestartText() string {
	r := p.cfg.Restart
	text := fmt.Sprintf("after %v, doubled up to %v", r.Initial, r.Max)
	if r.Attempts > 0 {
		return text + fmt.Sprintf(", at most %d times in a row", r.Attempts)
	}
	return text + ", as often as it takes"
}

// Instance is the name of this worker, "" where the file gives none.
func (p *Pipeline) Instance() string { return p.cfg.Instance }

// ShutdownTimeout bounds a stop.
func (p *Pipeline) ShutdownTimeout() time.Duration { return p.cfg.ShutdownTimeout.Duration() }

// Settings returns what the file says, in the order of its keys, with ${…} as it is written.
func (p *Pipeline) Settings() []gateway.Setting {
	var all []gateway.Setting
	for path, n := range p.read.values {
		if path != "" && n.kind == yaml.ScalarNode {
			all = append(all, gateway.Setting{Key: path, Value: p.Hide(n.mask(n.text))})
		}
	}
	slices.SortFunc(all, func(a, b gateway.Setting) int { return strings.Compare(a.Key, b.Key) })
	return all
}

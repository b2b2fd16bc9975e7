package asynchttp

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/secrets"
)

// Options are the keys of the http function in a pipeline file.
type Options struct {
	URL          functions.Template            `yaml:"url" doc:"what to call; each value is escaped by its place" required:"true"`
	Method       string                        `yaml:"method" doc:"the request's method" default:"GET" enum:"GET|POST|PUT|PATCH|DELETE"`
	Headers      map[string]functions.Template `yaml:"headers" doc:"request headers"`
	Query        Params                        `yaml:"query" doc:"parameters added to the query of url: a map of names to a template, or to a list of them for a name that is repeated; each value is escaped"`
	Form         Params                        `yaml:"form" doc:"parameters that make the body, as a web page's form sends them (application/x-www-form-urlencoded); written as query is"`
	Body         functions.Expr                `yaml:"body" doc:"jq that gives the request's body: text goes as it is, anything else as JSON"`
	AllowHosts   []string                      `yaml:"allow_hosts" doc:"hosts that may be called beside the one that url names: name, *.name for its subdomains, name:port; required where the host comes from the event"`
	Routes       map[string]string             `yaml:"routes" doc:"servers that stand in for others, such as sidecars: the beginning of a URL (https://*.example.org/v1: the host's subdomains) to scheme://host[:port] or unix:///path; of several the more specific host, then the longer path rules; the request still names its own host, which needs no allow_hosts"`
	TLS          *secrets.TLS                  `yaml:"tls" doc:"true, or {ca_file, cert_file, key_file, server_name, insecure_skip_verify}: how https connections are protected; the files are read again when they change"`
	Auth         *AuthOptions                  `yaml:"auth" doc:"credentials, sent to the host of the request alone, never to another one on a redirect"`
	DenyPrivate  bool                          `yaml:"deny_private" doc:"refuses connections to addresses that are not of the public network (loopback, private, link-local, multicast), as names turn out to have; not those to routes" default:"false"`
	Select       functions.AnswerExpr          `yaml:"select" doc:"jq that picks the part of the answer that is used; left out: the whole answer; nothing there: not_found"`
	Into         Into                          `yaml:"into" doc:"where the answer goes: a path, or a map of paths to jq of the answer" required:"true"`
	As           string                        `yaml:"as" doc:"how the answer is read" default:"json" enum:"json|text|base64"`
	Timeout      functions.Duration            `yaml:"timeout" doc:"bound of one attempt, its answer included" default:"10s"`
	TotalTimeout functions.Duration            `yaml:"total_timeout" doc:"bound of the attempts of one event and the waits between them, not shorter than timeout; 0: none; time held by Retry-After does not count" default:"60s"`
	MaxResponse  functions.Size                `yaml:"max_response" doc:"bound of an answer after decompression; a larger one is an error" default:"64MiB"`
	Idempotent   bool                          `yaml:"idempotent" doc:"a POST or PATCH may be sent again although it may have been carried out" default:"false"`
	Retry        RetryOptions                  `yaml:"retry" doc:"when a failed attempt is made again"`
	Breaker      BreakerOptions                `yaml:"breaker" doc:"stops the calls to a host of which too many fail"`
	RateLimit    *RateLimitOptions             `yaml:"rate_limit" doc:"bounds how many calls are sent; left out: it does not"`
	Adaptive     bool                          `yaml:"adaptive" doc:"finds by itself, from latency and failures, how many calls may run at once, workers at most" default:"false"`
	Errors       []Rule                        `yaml:"errors" doc:"what is done about what came, the first that matches; what none matches: the default"`
	Bulk         *BulkOptions                  `yaml:"bulk" doc:"one request for the events of a batch: url, query, form, headers and body see the array of them; select and into take each event's item of the answer; needs a window"`
	Cache        *CacheOptions                 `yaml:"cache" doc:"keeps answers, and has events that ask for the same at the same time share one request; left out: each event asks"`
	RetryRecent  *RecentOptions                `yaml:"retry_recent" doc:"asks again, without an attempt, while the event is so young that what it asks for may not be there yet; comes before errors"`
}

// RetryOptions say when a failed attempt is made again.
type RetryOptions struct {
	Attempts      int                `yaml:"attempts" doc:"attempts at most, the first among them; 0: until total_timeout; a try whose answer holds its host (by Retry-After) is none" default:"5"`
	Initial       functions.Duration `yaml:"initial" doc:"upper bound of the first random wait; it doubles with each attempt" default:"200ms"`
	Max           functions.Duration `yaml:"max" doc:"largest bound of a random wait" default:"10s"`
	RetryAfterMax functions.Duration `yaml:"retry_after_max" doc:"longest wait that a Retry-After header is given; of an answer that calls for another attempt, whatever its status, it holds all events of the host, however often it is repeated" default:"60s"`
	Share         float64            `yaml:"share" doc:"retries against calls of a host; used up, further ones wait, which is no attempt and fails no event; one a second is always allowed" default:"0.1"`
}

// Into says where an answer goes.
type Into struct{ Targets []Target }

// Target is one place that is set. Without Value the whole answer goes there.
type Target struct {
	Path  functions.Path
	Value functions.AnswerExpr
}

// IsZero reports whether the option was left out.
func (i Into) IsZero() bool { return len(i.Targets) == 0 }

// UnmarshalYAML reads PATH, or {PATH: jq of the answer}.
func (i *Into) UnmarshalYAML(n *yaml.Node) error {
	i.Targets = nil
	switch n.Kind {
	case yaml.ScalarNode:
		var t Target
		if err := t.Path.UnmarshalText([]byte(n.Value)); err != nil {
			return err
		}
		i.Targets = []Target{t}
		return nil
	case yaml.MappingNode:
	default:
		return errors.New("want a path such as .page.content, or a map of paths to jq of the answer")
	}
	seen := map[string]bool{}
	for k := 0; k+1 < len(n.Content); k += 2 {
		key, value := n.Content[k], n.Content[k+1]
		wrong := func(inKey bool, err error) error {
			return &functions.OptionError{Option: element(key.Value), Key: inKey, Err: err}
		}
		var t Target
		if err := t.Path.UnmarshalText([]byte(key.Value)); err != nil {
			return wrong(true, err)
		}
		if value.Kind != yaml.ScalarNode {
			return wrong(false, errors.New("want jq of the answer"))
		}
		if err := t.Value.UnmarshalText([]byte(value.Value)); err != nil {
			return wrong(false, err)
		}
		if seen[t.Path.Path.String()] {
			return wrong(true, errors.New("is set twice"))
		}
		seen[t.Path.Path.String()] = true
		i.Targets = append(i.Targets, t)
	}
	if i.IsZero() {
		return errors.New("the map is empty: write at least one path")
	}
	return nil
}

// Hide makes messages about the jq of the answer show mask of their text.
func (i *Into) Hide(mask func(string) string) {
	for _, t := range i.Targets {
		if !t.Value.IsZero() {
			t.Value.Hide(mask)
		}
	}
}

// element names one key of a map as OptionError does.
func element(key string) string { return fmt.Sprintf("[%q]", key) }

var _ functions.Validator = Options{}

// Validate returns what is wrong beyond single keys, each an *functions.OptionError.
func (o Options) Validate() error {
	var errs []error
	wrong := func(option, format string, args ...any) {
		errs = append(errs, &functions.OptionError{Option: option, Err: fmt.Errorf(format, args...)})
	}
	o.checkURL(wrong)
	o.checkRequest(wrong)
	spelled := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(o.Headers)) {
		err := checkHeaderName(name)
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if other, twice := spelled[canonical]; twice && err == nil {
			err = fmt.Errorf("%q and %q are the same header: write one of them", other, name)
		}
		spelled[canonical] = name
		if err != nil {
			errs = append(errs, &functions.OptionError{Option: "headers" + element(name), Key: true, Err: err})
		}
	}
	if o.Into.IsZero() {
		wrong("into", "say where the answer goes, such as .page.content")
	}
	if o.Timeout <= 0 {
		wrong("timeout", "an attempt needs a bound: write a duration above 0")
	}
	if o.MaxResponse <= 0 {
		wrong("max_response", "an answer needs a bound: write a size above 0")
	}
	if o.TotalTimeout > 0 && o.TotalTimeout < o.Timeout {
		wrong("total_timeout", "%v is less than timeout %v, the bound of one attempt: write a shorter timeout too; 0 is no bound", o.TotalTimeout, o.Timeout)
	}
	r := o.Retry
	if r.Attempts < 0 {
		wrong("retry.attempts", "%d is negative: 0 means until total_timeout", r.Attempts)
	}
	if r.Initial <= 0 {
		wrong("retry.initial", "without a wait all attempts would be made at once: write a duration above 0")
	}
	if r.Max < r.Initial {
		wrong("retry.max", "%v is less than initial %v", r.Max, r.Initial)
	}
	if r.RetryAfterMax <= 0 {
		wrong("retry.retry_after_max", "write a duration above 0")
	}
	o.checkGate(wrong)
	o.checkOutcomes(wrong)
	o.checkBulk(wrong)
	o.checkCache(wrong)
	return errors.Join(errs...)
}

// webScheme is the beginning of a URL, also of one that is written as a jq string.
var webScheme = regexp.MustCompile(`(?i)^\s*(@[a-z0-9]+\s*)?"?https?://`)

func (o Options) checkURL(wrong func(option, format string, args ...any)) {
	if o.URL.IsZero() {
		wrong("url", "say what to call")
		return
	}
	if err := o.URL.CheckURL(); err != nil {
		wrong("url", "%w", err)
		return
	}
	if !webScheme.MatchString(o.URL.Template.String()) {
		wrong("url", "want a URL that begins with https:// or http://")
	}
	if _, fixed := o.URL.HostIsFixed(); !fixed && len(o.AllowHosts) == 0 && len(o.Routes) == 0 {
		wrong("allow_hosts", "the host of url comes from the event: name the hosts that may be called")
	}
	for i, text := range o.AllowHosts {
		if _, err := parsePattern(text); err != nil {
			wrong(fmt.Sprintf("allow_hosts[%d]", i), "%w", err)
		}
	}
}

// ownHeaders belong to the connection, not to the user.
var ownHeaders = map[string]string{
	"Host":              "the host comes from url",
	"Accept-Encoding":   "answers are decompressed for you",
	"Connection":        "it belongs to the connection pool",
	"Content-Length":    "it is found from body",
	"Transfer-Encoding": "it is found from body",
	"Te":                "it belongs to the connection pool",
	"Trailer":           "it belongs to the connection pool",
	"Upgrade":           "it belongs to the connection pool",
}

func checkHeaderName(name string) error {
	if why, own := ownHeaders[textproto.CanonicalMIMEHeaderKey(name)]; own {
		return fmt.Errorf("%s cannot be set: %s", name, why)
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return fmt.Errorf("%q is no header name", name)
		}
	}
	if name == "" {
		return errors.New("a header needs a name")
	}
	return nil
}

// Spec describes the function for the registry.
func Spec() functions.Spec {
	return functions.NewBuilt("http", "calls an HTTP API and puts its answer into the event",
		func(env functions.Env, o Options) (functions.Built, error) {
			f, err := New(env, o)
			switch {
			case err != nil:
				return functions.Built{}, err
			case o.Bulk != nil:
				return functions.Built{Batch: newBulk(f)}, nil
			}
			return functions.Built{Func: f}, nil
		})
}

// New makes the function. It shares the connections and holds of env.HTTP where that comes from a
// Client of this package.
func New(env functions.Env, o Options) (*Func, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p := poolOf(env.HTTP, ClientConfig{Workers: env.Workers, Metrics: env.Metrics})
	f := &Func{
		o: o, pool: p, meters: p.metrics.of(env.Name), log: env.Logger,
		timeout: time.Duration(o.Timeout), total: time.Duration(o.TotalTimeout), repeatable: o.repeatable(),
	}
	f.gates = newGates(o, env.Workers, p.metrics.gates.of(env.Name), time.Now())
	if o.Bulk != nil {
		f.meters.withBulk(p.metrics, env.Name)
	}
	if o.Cache != nil {
		f.cache = newCache(o.Cache, f.CallTimeout(), p.metrics.cache.of(env.Name))
		f.varying, f.withHeaders = o.varying(), o.looksAtHeaders()
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if host, fixed := o.URL.HostIsFixed(); fixed {
		// A literal host is allowed by itself, with just its port.
		name, port := splitHost(host)
		f.allow = append(f.allow, pattern{name: name, port: port})
	}
	for _, text := range o.AllowHosts {
		one, err := parsePattern(text)
		if err != nil {
			return nil, &functions.OptionError{Option: "allow_hosts", Err: err}
		}
		f.allow = append(f.allow, one)
	}
	if err := f.connect(); err != nil {
		return nil, err
	}
	return f, nil
}

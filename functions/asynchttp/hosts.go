package asynchttp

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
)

// maxHosts bounds what is remembered: the names of hosts may come from events.
const maxHosts = 4096

// hosts is what all calls through one pool know of the hosts they call.
type hosts struct {
	mu        sync.Mutex // guards all below
	successes uint64     // numbers the good answers of all hosts
	byName    map[string]*host
}

type host struct {
	until   time.Time // it asked not to be called before
	success uint64    // number of its last good answer
}

func newHosts() *hosts { return &hosts{byName: map[string]*host{}} }

// get returns what is known of name. The caller holds the lock.
func (h *hosts) get(name string) *host {
	if at, ok := h.byName[name]; ok {
		return at
	}
	if len(h.byName) >= maxHosts {
		now := time.Now()
		for n, at := range h.byName {
			if len(h.byName) >= maxHosts/2 && at.until.Before(now) {
				delete(h.byName, n)
			}
		}
	}
	at := &host{}
	if len(h.byName) < maxHosts { // all others are held: forget this one
		h.byName[name] = at
	}
	return at
}

// held returns until when no call may go to the host.
func (h *hosts) held(name string, now time.Time) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.byName[name]
	if !ok || !at.until.After(now) {
		return time.Time{}, false
	}
	return at.until, true
}

// mark returns the number of the last good answer of any host.
func (h *hosts) mark() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.successes
}

// succeeded notes a good answer.
func (h *hosts) succeeded(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.successes++
	h.get(name).success = h.successes
}

// refused notes that the host asked to wait. Where it has answered another call well since mark, the
// refusal is that call's own affair and alone is true; else the host is held for all calls.
func (h *hosts) refused(name string, mark uint64, until time.Time) (held time.Time, alone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.get(name)
	if at.success > mark {
		return time.Time{}, true
	}
	if until.After(at.until) {
		at.until = until
	}
	return at.until, false
}

// allowList is allow_hosts, and the host that the URL names literally.
type allowList []pattern

// pattern is one entry: a name, *.name for its subdomains, and a port.
type pattern struct {
	name       string
	subdomains bool
	port       string // "" the scheme's own, "*" any
}

// parsePattern reads one entry of allow_hosts.
func parsePattern(text string) (pattern, error) {
	name, port := splitHost(text)
	p := pattern{name: name, port: port}
	p.name, p.subdomains = strings.CutPrefix(p.name, "*.")
	switch {
	case strings.Contains(text, "/"), strings.Contains(text, "@"):
		return pattern{}, fmt.Errorf("%q is no host: write its name alone, such as api.example.org", text)
	case strings.Contains(p.name, "*"):
		return pattern{}, fmt.Errorf("%q: * may only stand for subdomains, as in *.example.org, or for the port", text)
	case p.name == "", strings.ContainsAny(p.name, " \t?#,"):
		return pattern{}, fmt.Errorf("%q is no host", text)
	case strings.HasSuffix(text, ":"), p.port != "" && p.port != "*" && !digits(p.port):
		return pattern{}, fmt.Errorf("%q: want host:port with a number or * as port", text)
	}
	return p, nil
}

// splitHost cuts host[:port] and gives the name one spelling.
func splitHost(hostport string) (name, port string) {
	name = hostport
	if h, p, err := net.SplitHostPort(hostport); err == nil {
		name, port = h, p
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	return strings.TrimSuffix(strings.ToLower(name), "."), port
}

// allows reports whether u may be called.
func (l allowList) allows(u *url.URL) bool {
	name, port := splitHost(u.Host)
	ownPort := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if port == "" {
		port = ownPort
	}
	for _, p := range l {
		if p.port != "*" && port != p.port && (p.port != "" || port != ownPort) {
			continue
		}
		if p.subdomains && strings.HasSuffix(name, "."+p.name) || !p.subdomains && name == p.name {
			return true
		}
	}
	return false
}

package asynchttp

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/a0c75104/enricher/event"
)

const maxRedirects = 10

// redirectError says why a redirect was not followed.
type redirectError struct {
	kind event.Type
	err  error
}

func (e *redirectError) Error() string { return e.err.Error() }
func (e *redirectError) Unwrap() error { return e.err }

// harmless are the request headers that another host may see. All others may be credentials, whatever
// their name, so they go only to the host that they were meant for.
var harmless = []string{"Accept", "Accept-Language", "Content-Type", "User-Agent"}

// redirect decides whether a redirect is followed, as http.Client's CheckRedirect.
func (f *Func) redirect(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return &redirectError{event.UnexpectedStatus, fmt.Errorf("more than %d redirects", maxRedirects)}
	case req.URL.User != nil:
		return &redirectError{event.Rejected, fmt.Errorf("a redirect to host %q carries a user name", req.URL.Host)}
	case req.URL.Scheme != "https" && req.URL.Scheme != "http":
		return &redirectError{event.Rejected, fmt.Errorf("a redirect to the scheme %q", req.URL.Scheme)}
	case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
		return &redirectError{event.Rejected, fmt.Errorf("a redirect from https to http, host %q", req.URL.Host)}
	case !f.mayCall(req.URL):
		return &redirectError{event.Rejected, fmt.Errorf("a redirect to host %q, which allow_hosts does not name", req.URL.Host)}
	}
	if !sameServer(req.URL, via[0].URL) {
		kept := http.Header{}
		for _, name := range harmless {
			if v := req.Header.Values(name); len(v) > 0 {
				kept[name] = v
			}
		}
		req.Header = kept
	}
	return nil
}

// mayCall reports whether allow_hosts, the literal host of url, or a route names u.
func (f *Func) mayCall(u *url.URL) bool { return f.allow.allows(u) || f.routes.of(u) != nil }

// sameServer reports whether what is meant for a may be shown to b.
func sameServer(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

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

// ownPort is the port of a URL that names none.
func ownPort(scheme string) string { return map[string]string{"http": "80", "https": "443"}[scheme] }

// allows reports whether u may be called.
func (l allowList) allows(u *url.URL) bool {
	name, port := splitHost(u.Host)
	own := ownPort(u.Scheme)
	if port == "" {
		port = own
	}
	for _, p := range l {
		if p.port != "*" && port != p.port && (p.port != "" || port != own) {
			continue
		}
		if p.subdomains && strings.HasSuffix(name, "."+p.name) || !p.subdomains && name == p.name {
			return true
		}
	}
	return false
}

package asynchttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// route sends the requests under one URL to another server, a sidecar as a rule.
type route struct {
	scheme string
	host   pattern
	path   string // "" or with a slash before and none behind

	target *url.URL          // scheme and host; nil: a socket
	socket string            // path of a unix socket
	rt     http.RoundTripper // set when the function is made
}

// parseRoute reads one entry of routes.
func parseRoute(from, to string) (r route, err error) {
	u, err := url.Parse(from)
	switch {
	case err != nil:
		return r, fmt.Errorf("%q is no URL", from)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return r, fmt.Errorf("%q: want the beginning of a URL, such as https://api.example.org or https://*.example.org/v1", from)
	case u.User != nil, u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return r, errors.New("want scheme, host and path alone")
	}
	r.scheme, r.path = u.Scheme, strings.TrimRight(u.EscapedPath(), "/")
	if r.host, err = parsePattern(u.Host); err != nil {
		return r, err
	}
	if path, ok := strings.CutPrefix(to, "unix://"); ok {
		if !strings.HasPrefix(path, "/") {
			return r, fmt.Errorf("%q: want the whole path of a socket, such as unix:///run/proxy.sock", to)
		}
		r.socket = path
		return r, nil
	}
	t, err := url.Parse(to)
	switch {
	case err != nil:
		return r, errors.New("want scheme://host[:port] or unix:///path")
	case t.Scheme != "http" && t.Scheme != "https", t.Host == "":
		return r, fmt.Errorf("%q: want scheme://host[:port], such as http://127.0.0.1:6500, or unix:///path", t.Redacted())
	case t.User != nil, t.Path != "" && t.Path != "/", t.RawQuery != "", t.Fragment != "":
		return r, fmt.Errorf("%q: want scheme and host alone: path and query are those of url", t.Redacted())
	}
	if _, err := parsePattern(t.Host); err != nil || strings.Contains(t.Host, "*") {
		return r, fmt.Errorf("%q is no host and port", t.Host)
	}
	r.target = &url.URL{Scheme: t.Scheme, Host: t.Host}
	return r, nil
}

// parseRoutes reads routes, the more specific ones first: those of a whole host name before those of its
// parents' subdomains, then those of the longer path.
func parseRoutes(entries map[string]string) ([]route, error) {
	var out []route
	for from, to := range entries {
		r, err := parseRoute(from, to)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b route) int { return cmp.Or(b.weight(a), strings.Compare(a.prefix(), b.prefix())) })
	return out, nil
}

// weight compares how much r and o say of a URL.
func (r *route) weight(o route) int {
	whole := func(x *route) int {
		if x.host.subdomains {
			return 0
		}
		return 1
	}
	return cmp.Or(whole(r)-whole(&o), len(r.host.name)-len(o.host.name), len(r.path)-len(o.path))
}

// prefix spells the beginning of the URLs that r takes, one spelling for equal ones.
func (r *route) prefix() string {
	port := r.host.port
	if port == ownPort(r.scheme) {
		port = ""
	}
	return fmt.Sprintf("%s://%v %s:%s%s", r.scheme, r.host.subdomains, r.host.name, port, r.path)
}

// takes reports whether u begins as r says. A path ends at the border of a segment.
func (r *route) takes(u *url.URL) bool {
	if u.Scheme != r.scheme || !(allowList{r.host}).allows(u) {
		return false
	}
	rest, ok := strings.CutPrefix(u.EscapedPath(), r.path)
	return ok && (rest == "" || rest[0] == '/')
}

// to names the server of r for what is kept per host.
func (r *route) to() string {
	if r.target == nil {
		return "unix:" + r.socket
	}
	return r.target.Host
}

// socketHost stands for the server behind a socket, so that its connections are shared by all host names.
const socketHost = "socket"

// redirected returns a request to the server of r in place of req, which still asks for the host it did.
func (r *route) redirected(req *http.Request) *http.Request {
	out, u := *req, *req.URL
	u.Scheme, u.Host = "http", socketHost
	if r.target != nil {
		u.Scheme, u.Host = r.target.Scheme, r.target.Host
	}
	out.URL = &u
	if out.Host == "" {
		out.Host = req.URL.Host
	}
	return &out
}

// routeTable is all routes of a function and what is no route's.
type routeTable struct {
	routes []route
	direct http.RoundTripper
}

// of returns the route of u, nil where it has none.
func (t *routeTable) of(u *url.URL) *route {
	for i := range t.routes {
		if t.routes[i].takes(u) {
			return &t.routes[i]
		}
	}
	return nil
}

// host is the server that a request to u comes to, by which holds and limits go.
func (t *routeTable) host(u *url.URL) string {
	if r := t.of(u); r != nil {
		return r.to()
	}
	return u.Host
}

// send sends one request to where it belongs.
func (t *routeTable) send(req *http.Request) (*http.Response, error) {
	if r := t.of(req.URL); r != nil {
		return r.rt.RoundTrip(r.redirected(req))
	}
	return t.direct.RoundTrip(req)
}

package gateway

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// ownHosts are the names by which the gateway is asked. A page of another site that has its own name lead here sends
// that name.
type ownHosts struct {
	names    []string
	loopback bool // it listens there alone
}

func newOwnHosts(addr, listen, advertise string) ownHosts {
	host, _, _ := net.SplitHostPort(addr)
	h := ownHosts{loopback: isLoopback(host)}
	add := func(name string) {
		if name != "" && !slices.Contains(h.names, name) {
			h.names = append(h.names, strings.ToLower(name))
		}
	}
	add(hostOf(listen))
	add(hostOf(advertise))
	if name, err := os.Hostname(); err == nil && !h.loopback {
		add(name)
		short, _, _ := strings.Cut(name, ".")
		add(short)
	}
	return h
}

// hostOf is host:port, or a host alone, without the port.
func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		hostport = host
	}
	return strings.TrimSuffix(strings.Trim(hostport, "[]"), ".")
}

// has reports whether a Host header names the gateway. The port may be another: it may have been forwarded.
func (h ownHosts) has(r *http.Request, hostport string) bool {
	host := strings.ToLower(hostOf(hostport))
	if isLoopback(host) || slices.Contains(h.names, host) {
		return host != ""
	}
	ip, err := netip.ParseAddr(host)
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if err != nil || !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().WithZone("") == ip.Unmap().WithZone("")
}

// foreignSite reports which other site had a browser send the request, "" if none did.
func (g *Gateway) foreignSite(r *http.Request) string {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none": // none: the user's own doing
	default:
		return "Sec-Fetch-Site: " + site
	}
	for _, name := range []string{"Origin", "Referer"} {
		text := r.Header.Get(name)
		if text == "" {
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || !sameHost(u.Host, r.Host) && !sameHost(u.Host, g.cfg.Advertise) {
			return name + ": " + text
		}
	}
	return ""
}

// sameHost compares host and port. A page of another port of this machine is another site.
func sameHost(a, b string) bool { return b != "" && strings.EqualFold(a, b) }

// clean returns the path of a request without doubled slashes and without the version in front.
func clean(u *url.URL) (*url.URL, error) {
	var plain, escaped []string
	for _, segment := range strings.Split(u.EscapedPath(), "/") {
		if segment == "" {
			continue
		}
		text, err := url.PathUnescape(segment)
		if err != nil || text == "." || text == ".." || strings.ContainsAny(text, "/\\\x00") {
			return nil, refuse(http.StatusBadRequest, "The path of the request is not allowed.")
		}
		plain, escaped = append(plain, text), append(escaped, segment)
	}
	if len(plain) > 0 && plain[0] == "v1" {
		plain, escaped = plain[1:], escaped[1:]
	}
	cleaned := *u
	cleaned.Path, cleaned.RawPath = "/"+strings.Join(plain, "/"), "/"+strings.Join(escaped, "/")
	return &cleaned, nil
}

// admit holds a request to what it needs, before anything is done for it.
func (g *Gateway) admit(r *http.Request, needs right) error {
	if needs == act {
		if site := g.foreignSite(r); site != "" {
			g.refusals.say(r, "it comes from a page of another site", "site", site)
			return refuse(http.StatusForbidden, "The request was sent by a page of another site.")
		}
	}
	granted, shown := g.granted(r)
	switch {
	case granted >= needs:
		return nil
	case granted == open && !shown:
		g.refusals.say(r, "it shows no token")
		return refuse(http.StatusUnauthorized, "A token is needed: send Authorization: Bearer TOKEN, or log in at /login.")
	case granted == open:
		g.refusals.say(r, "its token is wrong")
		return refuse(http.StatusUnauthorized, "The token is wrong, or the login has expired.")
	}
	g.refusals.say(r, "its token does not allow to act")
	return refuse(http.StatusForbidden, "This token allows to read, not to act.")
}

// refusals logs what was refused: the first of a kind and sender, and one a minute.
type refusals struct {
	log *slog.Logger

	mu   sync.Mutex // guards said
	said map[string]*refusal
}

type refusal struct {
	at    time.Time
	since int
}

// sayAgain is how long refusals of one kind and sender are counted before the next is logged.
const sayAgain = time.Minute

// mostRefusals bounds those that are told apart.
const mostRefusals = 1000

func (f *refusals) say(r *http.Request, why string, args ...any) {
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	f.mu.Lock()
	defer f.mu.Unlock()
	key := from + " " + why
	last := f.said[key]
	if last == nil {
		if len(f.said) >= mostRefusals {
			clear(f.said) // senders without end: what was said of others before is forgotten
		}
		last = &refusal{}
		f.said[key] = last
	}
	now := time.Now()
	if !last.at.IsZero() && now.Sub(last.at) < sayAgain {
		last.since++
		return
	}
	args = append([]any{"why", why, "from", from, "method", r.Method, "path", short(r.URL.Path), "more_before", last.since}, args...)
	*last = refusal{at: now}
	f.log.Warn("request refused", args...)
}

// short is a text from outside, as far as a log should repeat it.
func short(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return s
}

// hidePanic makes a panic of a handler an error of the request: it must not end the connection without a word.
func (g *Gateway) hidePanic(w http.ResponseWriter, r *http.Request) {
	if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
		g.log.Error("a request panicked", "method", r.Method, "path", short(r.URL.Path), "panic", fmt.Sprint(p))
		writeError(w, refuse(http.StatusInternalServerError, "Internal server error."))
	}
}

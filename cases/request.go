package cases

import (
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
)

// differs says in what q is not the request that c is for; nothing: it is that one.
func (c *canned) differs(q *asked) []string {
	var out []string
	differ := func(what, made, here string) {
		if made != here {
			out = append(out, fmt.Sprintf("%s: asked for %s, the answer is for %s", what, quoted(made), quoted(here)))
		}
	}
	differ("method", q.method, c.method)
	differ("scheme", strings.ToLower(q.url.Scheme), strings.ToLower(c.url.Scheme))
	differ("host", hostOf(q.url), hostOf(c.url))
	differ("path", pathOf(q.url), pathOf(c.url))
	made, here := q.url.Query(), c.url.Query()
	for _, name := range sortedKeys(made, here) {
		switch {
		case !here.Has(name):
			out = append(out, fmt.Sprintf("?%s: asked for %s, the answer is for a request without it", name, quotedAll(made[name])))
		case !made.Has(name):
			out = append(out, fmt.Sprintf("?%s: is missing, the answer is for %s", name, quotedAll(here[name])))
		case !slices.Equal(made[name], here[name]):
			out = append(out, fmt.Sprintf("?%s: asked for %s, the answer is for %s", name, quotedAll(made[name]), quotedAll(here[name])))
		}
	}
	for _, name := range sortedKeys(c.RequestHeaders) {
		made := q.header[textproto.CanonicalMIMEHeaderKey(name)]
		differ("header "+name, strings.Join(made, ", "), c.RequestHeaders[name])
	}
	if c.RequestBody != "" {
		for _, d := range difference([]byte(c.RequestBody), q.body) {
			out = append(out, "body "+d)
		}
	}
	return out
}

func hostOf(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" || port == map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)] {
		return host
	}
	return host + ":" + port
}

func pathOf(u *url.URL) string {
	if p := u.EscapedPath(); p != "" {
		return p
	}
	return "/"
}

func quotedAll(values []string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = quoted(v)
	}
	return strings.Join(out, " and ")
}

func sortedKeys[M ~map[string]V, V any](maps ...M) []string {
	var keys []string
	for _, m := range maps {
		for k := range m {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// nearest returns the answer that is most like what q asks for, -1 where there is none.
func (a *answers) nearest(q *asked) int {
	best, least := -1, 0
	for i, c := range a.canned {
		n := len(c.differs(q))
		if hostOf(c.url) != hostOf(q.url) {
			n += 3 // what another host answers is hardly meant
		}
		if best < 0 || n < least {
			best, least = i, n
		}
	}
	return best
}

package jq

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/a0c75104/enricher/event"
)

// place is the part of a URL that a piece of a template stands in. It decides how a value is escaped.
type place int

const (
	inHost place = iota
	inPath
	inQuery
	inFragment
)

// urlPlan is a template cut at the borders of a URL's parts.
type urlPlan struct {
	scheme string // with ://
	pieces []urlPiece
	fixed  bool   // no value in the host
	host   string // where fixed
}

type urlPiece struct {
	place place
	text  string // escaped where it needs to be
	part  *part  // nil for text
}

var schemePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// CheckURL says why the template cannot make a URL, nil if it can. The error is a *SyntaxError.
func (t *Template) CheckURL() error { return t.urlErr }

// HostIsFixed returns the host (and port) if no expression is part of it.
func (t *Template) HostIsFixed() (host string, fixed bool) {
	if t.url == nil || !t.url.fixed {
		return "", false
	}
	return t.url.host, true
}

// Host returns the host (and port) of the URL for ev. Nothing but the expressions of the host is evaluated; the errors
// are those of URL.
func (t *Template) Host(ctx context.Context, ev *event.Event) (string, error) {
	switch {
	case t.url == nil:
		return "", event.Reject(event.Rejected, t.urlErr)
	case t.url.fixed:
		return t.url.host, nil
	}
	in := newInput(ctx, ev)
	var host strings.Builder
	for _, piece := range t.url.pieces {
		s := piece.text
		if piece.place != inHost {
			continue
		}
		if piece.part != nil {
			v, err := piece.part.urlValue(in)
			if err == nil {
				s, err = escape(piece, v)
			}
			if err != nil {
				return "", t.HideIn(err)
			}
		}
		host.WriteString(s)
	}
	return host.String(), t.HideIn(checkHost(host.String()))
}

// urlValue is the value of a part of a URL, which its place is to escape.
func (p *part) urlValue(in *input) (string, error) {
	if p.format == "@uri" {
		return p.plain(in)
	}
	return p.value(in)
}

// URL returns the URL for ev. Each value is escaped by its place: in the host only a name and a port
// may stand, a path segment and the query are escaped, and a segment that comes out as . or .. is
// refused. So no value changes the host, the number of path segments or the names of the query. A
// missing, null or empty value is a Reject of type MissingField, one that is refused of type Rejected.
func (t *Template) URL(ctx context.Context, ev *event.Event) (*url.URL, error) {
	if t.url == nil {
		return nil, event.Reject(event.Rejected, t.urlErr)
	}
	in := newInput(ctx, ev)
	u, err := t.url.build(func(p *part) (string, error) { return p.urlValue(in) })
	return u, t.HideIn(err)
}

// build puts the URL together with the value of each part.
func (u *urlPlan) build(value func(*part) (string, error)) (*url.URL, error) {
	var b, host, path strings.Builder
	b.WriteString(u.scheme)
	for _, piece := range u.pieces {
		s := piece.text
		if piece.part != nil {
			v, err := value(piece.part)
			if err != nil {
				return nil, err
			}
			if s, err = escape(piece, v); err != nil {
				return nil, err
			}
		}
		switch piece.place {
		case inHost:
			host.WriteString(s)
		case inPath:
			path.WriteString(s)
		}
		b.WriteString(s)
	}
	if !u.fixed {
		if err := checkHost(host.String()); err != nil {
			return nil, err
		}
	}
	if err := checkSegments(path.String()); err != nil {
		return nil, err
	}
	out, err := url.Parse(b.String())
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the whole URL, which may hold what is not for logs
		}
		return nil, event.Rejectf(event.Rejected, "building the URL: %w", err)
	}
	if out.Host != host.String() || out.User != nil {
		return nil, event.Rejectf(event.Rejected, "building the URL: host %q came out as %q", host.String(), out.Host)
	}
	return out, nil
}

func escape(p urlPiece, v string) (string, error) {
	switch p.place {
	case inHost:
		return v, checkHostChars(v)
	case inQuery:
		return url.QueryEscape(v), nil
	default:
		return url.PathEscape(v), nil
	}
}

func checkHostChars(v string) error {
	for i := range len(v) {
		if c := v[i]; !hostChar(c) && c != '.' && c != ':' {
			return event.Rejectf(event.Rejected, "%q cannot be part of a host: only a name and a port may stand there", cut(v, 100))
		}
	}
	return nil
}

func hostChar(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// checkHost checks name[:port].
func checkHost(host string) error {
	name, port, found := strings.Cut(host, ":")
	if found {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || len(port) > 5 {
			return event.Rejectf(event.Rejected, "%q is no host: want name or name:port", cut(host, 100))
		}
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || len(name) > 253 {
			return event.Rejectf(event.Rejected, "%q is no host: want name or name:port", cut(host, 100))
		}
	}
	return nil
}

func checkSegments(path string) error {
	for s := range strings.SplitSeq(path, "/") {
		plain, err := url.PathUnescape(s)
		if err != nil {
			return event.Rejectf(event.Rejected, "building the URL: %w", err)
		}
		if plain == "." || plain == ".." {
			return event.Rejectf(event.Rejected, "a value makes the path segment %q, which is not allowed", plain)
		}
	}
	return nil
}

// planURL cuts parts at the borders of a URL.
func planURL(parts []part) (*urlPlan, error) {
	scheme := schemePattern.FindString(parts[0].text)
	if scheme == "" {
		return nil, &SyntaxError{Offset: max(parts[0].at, 0), Message: "a URL begins with its scheme written out, such as https://"}
	}
	u := &urlPlan{scheme: scheme, fixed: true}
	at := inHost
	for i := range parts {
		p := &parts[i]
		if p.expr != nil {
			if p.escaped {
				return nil, &SyntaxError{Offset: p.at, Message: "values in a URL are escaped by their place: leave out | @uri"}
			}
			u.fixed = u.fixed && at != inHost
			u.pieces = append(u.pieces, urlPiece{place: at, part: p})
			continue
		}
		text := p.text
		from := p.at
		if i == 0 {
			text, from = text[len(scheme):], from+len(scheme)
		}
		if b := strings.IndexAny(text, "{}"); b >= 0 {
			return nil, braceError(text[b], from+b)
		}
		if halfEscape.MatchString(text) && i < len(parts)-1 {
			return nil, &SyntaxError{Offset: p.at, Message: "a % before a value would change it: write %25"}
		}
		at = u.literal(text, at)
	}
	if err := u.check(parts[0].at); err != nil {
		return nil, err
	}
	return u, nil
}

// braceError refuses a brace, which is no character of a URL: where one stands, another program's way to
// write a value was meant, and the API would be asked for its text.
func braceError(brace byte, at int) error {
	return &SyntaxError{Offset: max(at, 0), Message: fmt.Sprintf(`"%c" cannot stand in a URL: write \(.id) for a value of the event, or %%%02X for the brace itself`, brace, brace)}
}

// halfEscape is text that ends within a percent escape.
var halfEscape = regexp.MustCompile(`%[0-9A-Fa-f]?$`)

// literal appends text that begins in the place at, and returns the place in which it ends.
func (u *urlPlan) literal(text string, at place) place {
	borders := map[place]string{inHost: "/?#", inPath: "?#", inQuery: "#"}
	for text != "" {
		n := len(text)
		if i := strings.IndexAny(text, borders[at]); at != inFragment && i >= 0 {
			n = i
		}
		if n > 0 {
			u.pieces = append(u.pieces, urlPiece{place: at, text: escapeLiteral(text[:n], at)})
		}
		if text = text[n:]; text == "" {
			break
		}
		switch text[0] {
		case '/':
			at = inPath
			continue // the slash is part of the path
		case '?':
			at = inQuery
		default:
			at = inFragment
		}
		u.pieces = append(u.pieces, urlPiece{place: at, text: text[:1]})
		text = text[1:]
	}
	return at
}

// escapeLiteral escapes what cannot stand in a URL as it is, and leaves escapes that are there.
// Without it a single such byte would make net/url escape the path anew, and undo %2F.
func escapeLiteral(text string, at place) string {
	if at == inHost {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case hostChar(c), strings.IndexByte("%./~!$&'()*+,;=:@?", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// check tries the plan with a harmless value, so that what is wrong in the text shows at load.
func (u *urlPlan) check(at int) error {
	var host strings.Builder
	for _, p := range u.pieces {
		if p.place == inHost {
			host.WriteString(p.text)
		}
	}
	if strings.Contains(host.String(), "@") {
		return &SyntaxError{Offset: max(at, 0), Message: "a URL carries no user name or password: use headers"}
	}
	tried, err := u.build(func(p *part) (string, error) { return "1", nil })
	if err != nil {
		if r := event.AsReject(err); r.Err != nil {
			err = r.Err
		}
		return &SyntaxError{Offset: max(at, 0), Message: err.Error()}
	}
	if tried.Host == "" {
		return &SyntaxError{Offset: max(at, 0), Message: "the URL has no host"}
	}
	if u.fixed {
		u.host = tried.Host
	}
	return nil
}

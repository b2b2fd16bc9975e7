package asynchttp

import (
	"fmt"
	"net/http"

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
	case !f.allow.allows(req.URL):
		return &redirectError{event.Rejected, fmt.Errorf("a redirect to host %q, which allow_hosts does not name", req.URL.Host)}
	}
	if req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
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

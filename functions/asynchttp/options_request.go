package asynchttp

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/secrets"
)

// Params are named values of a query or a form.
type Params map[string]Values

// Values are the values of one name, a template each.
type Values []functions.Template

// UnmarshalYAML reads one template, or a list of them.
func (v *Values) UnmarshalYAML(n *yaml.Node) error {
	*v = nil
	nodes, list := []*yaml.Node{n}, n.Kind == yaml.SequenceNode
	if list {
		nodes = n.Content
	}
	if len(nodes) == 0 {
		return errors.New("the list is empty: write at least one value, or leave the name out")
	}
	for i, one := range nodes {
		var t functions.Template
		err := errors.New("want a text with \\(jq) in it, or a list of them")
		if one.Kind == yaml.ScalarNode && one.Tag != "!!null" {
			err = t.UnmarshalText([]byte(one.Value))
		}
		if err != nil && list {
			return &functions.OptionError{Option: fmt.Sprintf("[%d]", i), Err: err}
		} else if err != nil {
			return err
		}
		*v = append(*v, t)
	}
	return nil
}

// Hide makes messages about the templates show mask of their text.
func (v *Values) Hide(mask func(string) string) {
	for _, t := range *v {
		t.Hide(mask)
	}
}

// Words says how the option is written.
func (v *Values) Words() string { return "template, or list of them" }

// AuthOptions say how a request proves who asks: one of them.
type AuthOptions struct {
	OAuth2     *OAuth2Options `yaml:"oauth2" doc:"a token by the client credentials grant, kept until it ends; a 401 has it replaced, and the request sent once more, which is no attempt"`
	Basic      *BasicOptions  `yaml:"basic" doc:"a user name and a password"`
	BearerFile string         `yaml:"bearer_file" doc:"file that holds a token; it is read again when it changes"`
}

// OAuth2Options say how a token is asked for.
type OAuth2Options struct {
	TokenURL     string            `yaml:"token_url" doc:"the authorization server's URL for tokens" required:"true"`
	ClientID     string            `yaml:"client_id" doc:"name of this client" required:"true"`
	ClientSecret functions.Secret  `yaml:"client_secret" doc:"its secret; ${file:PATH} reads it from a file" required:"true"`
	Scopes       []string          `yaml:"scopes" doc:"what the token is to be good for; left out: what the server gives"`
	Audience     string            `yaml:"audience" doc:"the API that the token is for, where the server wants to know"`
	Params       map[string]string `yaml:"params" doc:"further parameters of the request for a token"`
}

// BasicOptions are those of HTTP's basic authentication.
type BasicOptions struct {
	Username string           `yaml:"username" doc:"name of the user" required:"true"`
	Password functions.Secret `yaml:"password" doc:"password; ${file:PATH} reads it from a file" required:"true"`
}

// templates are those that a request is made of.
func (o Options) templates() []functions.Template {
	out := []functions.Template{o.URL}
	for _, t := range o.Headers {
		out = append(out, t)
	}
	for _, p := range []Params{o.Query, o.Form} {
		for _, v := range p {
			out = append(out, v...)
		}
	}
	return out
}

// checkRequest finds what is wrong with how requests are made and sent.
func (o Options) checkRequest(wrong finding) {
	if !o.Body.IsZero() && len(o.Form) > 0 {
		wrong("form", "body makes the request's body too: keep one of them")
	}
	if o.Method == http.MethodGet {
		for name, given := range map[string]bool{"body": !o.Body.IsZero(), "form": len(o.Form) > 0} {
			if given {
				wrong(name, "GET carries no body: write method: POST, or another that does")
			}
		}
	}
	for option, p := range map[string]Params{"query": o.Query, "form": o.Form} {
		if _, ok := p[""]; ok {
			wrong(option, "a parameter needs a name")
		}
	}
	if o.TLS != nil && o.TLS.Off {
		wrong("tls", "https URLs are called by TLS in any case: leave it out, or write http:// in url")
	}
	o.checkRoutes(wrong)
	if o.Auth != nil {
		o.checkAuth(wrong)
	}
	if o.DenyPrivate && !o.URL.IsZero() && len(o.Routes) == 0 {
		host, _ := o.URL.HostIsFixed()
		name, _ := splitHost(host)
		addr, err := netip.ParseAddr(name)
		if name == "localhost" || err == nil && !public(addr) {
			wrong("deny_private", "url names %s, which is no address of the public network: every call would be refused", name)
		}
	}
}

func (o Options) checkRoutes(wrong finding) {
	spelled := map[string]string{}
	for _, from := range slices.Sorted(maps.Keys(o.Routes)) {
		r, err := parseRoute(from, o.Routes[from])
		if err == nil && spelled[r.prefix()] != "" {
			err = fmt.Errorf("is the same URL as %q: write one of them", spelled[r.prefix()])
		}
		if err != nil {
			wrong("routes"+element(from), "%w", err)
			continue
		}
		spelled[r.prefix()] = from
	}
}

func (o Options) checkAuth(wrong finding) {
	a, given := o.Auth, 0
	for _, is := range []bool{a.OAuth2 != nil, a.Basic != nil, a.BearerFile != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		wrong("auth", "write one of oauth2, basic and bearer_file")
	}
	for name := range o.Headers {
		if textproto.CanonicalMIMEHeaderKey(name) == "Authorization" {
			wrong("headers"+element(name), "auth sets this header: keep one of them")
		}
	}
	if b := a.Basic; b != nil && strings.Contains(b.Username, ":") {
		wrong("auth.basic.username", "a user name has no colon in it")
	}
	if t := a.OAuth2; t != nil {
		u, err := url.Parse(t.TokenURL)
		switch {
		case err != nil, u.Scheme != "https" && u.Scheme != "http", u.Host == "":
			wrong("auth.oauth2.token_url", "want a URL that begins with https:// or http://")
		case u.User != nil:
			wrong("auth.oauth2.token_url", "a URL carries no user name or password: write client_id and client_secret")
		}
		for _, name := range []string{"audience", "client_id", "client_secret", "grant_type", "scope"} {
			if _, ok := t.Params[name]; ok {
				wrong("auth.oauth2.params"+element(name), "is set by the other keys of oauth2")
			}
		}
	}
}

// connect finds the connections of the function. It opens none.
func (f *Func) connect() error {
	var s settings
	if f.o.TLS != nil {
		s.tls = *f.o.TLS
	}
	if name := proxyVariable(); f.o.DenyPrivate && name != "" {
		return &functions.OptionError{Option: "deny_private", Err: fmt.Errorf("the environment sets a proxy by %s, which looks names up by itself: have the proxy refuse such addresses, or unset it", name)}
	}
	through := func(s settings) (http.RoundTripper, error) {
		rt, err := f.pool.through(s, f.log)
		return rt, tlsProblems(err)
	}
	plain, err := through(s) // also for tokens and routes, whose hosts no event chooses
	if err != nil {
		return err
	}
	f.auth = f.o.Auth.credentials(plain)
	f.routes.direct = plain
	if f.o.DenyPrivate {
		if f.routes.direct, err = through(settings{tls: s.tls, public: true}); err != nil {
			return err
		}
	}
	if f.routes.routes, err = parseRoutes(f.o.Routes); err != nil {
		return err
	}
	for i := range f.routes.routes {
		r := &f.routes.routes[i]
		r.rt = plain
		if r.target == nil {
			if r.rt, err = through(settings{socket: r.socket}); err != nil {
				return err
			}
		}
	}
	return nil
}

// tlsProblems names the option of each fault in err.
func tlsProblems(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, one := range many.Unwrap() {
			out = append(out, tlsProblems(one))
		}
		return errors.Join(out...)
	}
	if k, ok := errors.AsType[*secrets.KeyError](err); ok {
		return &functions.OptionError{Option: "tls." + k.Key, Err: k.Err}
	}
	return err
}

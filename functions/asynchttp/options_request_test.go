package asynchttp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

func TestFaultsOfRequestOptionsAreFoundBeforeTheStart(t *testing.T) {
	noProxy(t)
	for _, tc := range []struct{ name, options, option, message string }{
		{"form of a GET", `form: {a: x}`, "form", "method: POST"},
		{"form and body", "method: POST\nform: {a: x}\nbody: .", "form", "keep one"},
		{"parameter without a name", `query: {"": x}`, "query", "needs a name"},
		{"route of no URL", `routes: {api.org: "http://a"}`, `routes["api.org"]`, "the beginning of a URL"},
		{"route with a query", `routes: {"http://api/?a=b": "http://a"}`, `routes["http://api/?a=b"]`, "path alone"},
		{"route to a path", `routes: {"http://api": "http://a/b"}`, `routes["http://api"]`, "scheme and host alone"},
		{"route to another scheme", `routes: {"http://api": "ftp://a"}`, `routes["http://api"]`, "want scheme://host[:port]"},
		{"route to half a socket", `routes: {"http://api": "unix://run/s"}`, `routes["http://api"]`, "unix:///run/proxy.sock"},
		{"route to any host", `routes: {"http://api": "http://*.org"}`, `routes["http://api"]`, "no host and port"},
		{"one route twice", `routes: {"http://api": "http://a", "http://API:80/": "http://b"}`, `routes["http://api"]`, `is the same URL as "http://API:80/"`},
		{"no certificate", `tls: {ca_file: /does/not/exist}`, "tls.ca_file", "reading the certificates"},
		{"certificate without key", `tls: {cert_file: c}`, "tls.cert_file", "key_file"},
		{"no credentials", `auth: {}`, "auth", "one of"},
		{"two credentials", `auth: {bearer_file: a, basic: {username: u, password: p}}`, "auth", "one of"},
		{"credentials twice", "auth: {bearer_file: a}\nheaders: {authorization: x}", `headers["authorization"]`, "keep one"},
		{"colon in a name", `auth: {basic: {username: "u:v", password: p}}`, "auth.basic.username", "colon"},
		{"no token_url", `auth: {oauth2: {token_url: "//x"}}`, "auth.oauth2.token_url", "https://"},
		{"password in token_url", `auth: {oauth2: {token_url: "https://u:hush@x"}}`, "auth.oauth2.token_url", "client_secret"},
		{"parameter that is a key", `auth: {oauth2: {token_url: "https://x", params: {scope: a}}}`, `auth.oauth2.params["scope"]`, "other keys"},
		{"private url", `deny_private: true`, "deny_private", "127.0.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := asynchttp.New(functions.Env{}, options(t, "url: http://127.0.0.1/\ninto: .r\n"+tc.options))
			o, ok := errors.AsType[*functions.OptionError](err)
			if !ok || o.Option != tc.option || !strings.Contains(o.Err.Error(), tc.message) || strings.Contains(err.Error(), "hush") {
				t.Errorf("got %v, want %s: …%s…", err, tc.option, tc.message)
			}
		})
	}
}

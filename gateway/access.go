package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/a0c75104/enricher/secrets"
)

// TLS protects the connections to the gateway.
type TLS struct {
	CertFile     string `yaml:"cert_file" required:"true" doc:"certificate of this server"`
	KeyFile      string `yaml:"key_file" required:"true" doc:"key of that certificate"`
	ClientCAFile string `yaml:"client_ca_file" doc:"certificates that clients are checked against: one that shows a certificate of theirs may act without a token"`
}

// Access says who may ask for what.
type Access struct {
	TokenFile     string // holds the token of who may act and read; "": none
	ReadTokenFile string // holds the token of who may read alone
	TLS           *TLS   // nil: connections are not protected
	Insecure      bool   // anybody may act, wherever the gateway listens
}

// guarded reports whether it takes a token or a certificate to act.
func (a Access) guarded() bool {
	return a.TokenFile != "" || a.ReadTokenFile != "" || a.TLS != nil && a.TLS.ClientCAFile != ""
}

// Check finds an address at which anybody could act although nobody said that this is wanted.
func (a Access) Check(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || isLoopback(host) || a.guarded() || a.Insecure {
		return nil //nolint:nilerr // what is no address is told elsewhere
	}
	return fmt.Errorf("%q can be reached from other machines, where anybody could stop the job: give token_file, or tls with client_ca_file, or insecure: true, or control: off, which leaves /healthz, /readyz and /metrics", listen)
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// config reads the files anew. Whoever shows a certificate must show one of the given; who shows none may still have a
// token, or ask for what is open.
func (t *TLS) config() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading gateway.tls: %w", err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if t.ClientCAFile == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("reading gateway.tls.client_ca_file: %w", err)
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading gateway.tls.client_ca_file: %q holds no certificate in PEM", t.ClientCAFile)
	}
	return cfg, nil
}

// listener has connections protected, by the files as they are when each begins.
func (t *TLS) listener(l net.Listener) (net.Listener, error) {
	first, err := t.config()
	if err != nil {
		return nil, err
	}
	r := &renewed{tls: t, cfg: first, stamp: t.stamp()}
	return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: r.current}), nil
}

func (t *TLS) stamp() string {
	return (&secrets.TLS{CAFile: t.ClientCAFile, CertFile: t.CertFile, KeyFile: t.KeyFile}).Stamp()
}

// renewed is a configuration that is read again when its files change.
type renewed struct {
	tls *TLS

	mu    sync.Mutex // guards the rest
	cfg   *tls.Config
	stamp string
}

func (r *renewed) current(*tls.ClientHelloInfo) (*tls.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.tls.stamp(); now != r.stamp {
		if cfg, err := r.tls.config(); err == nil { // one file may be there before the other: then it is tried again
			r.cfg, r.stamp = cfg, now
		}
	}
	return r.cfg, nil
}

// tokens are what proves that somebody may act, or read.
type tokens struct{ act, read *secrets.File }

// newTokens reads them once, so that a file that is not there is told at the start.
func newTokens(a Access) (tokens, error) {
	var t tokens
	var errs []error
	for _, f := range []struct {
		path, key string
		to        **secrets.File
	}{{a.TokenFile, "token_file", &t.act}, {a.ReadTokenFile, "read_token_file", &t.read}} {
		if f.path == "" {
			continue
		}
		*f.to = secrets.NewFile(f.path)
		if _, err := (*f.to).Text(); err != nil {
			errs = append(errs, fmt.Errorf("reading gateway.%s: %w", f.key, err))
		}
	}
	return t, errors.Join(errs...)
}

// none reports whether there are none at all.
func (t tokens) none() bool { return t.act == nil && t.read == nil }

// of returns the token of a right, "" where there is none. A file that is being replaced proves nothing meanwhile.
func (t tokens) of(r right) string {
	file := t.act
	if r == read {
		file = t.read
	}
	if file == nil {
		return ""
	}
	text, err := file.Text()
	if err != nil {
		return ""
	}
	return text
}

// grants returns what a token allows: open where it is none of them.
func (t tokens) grants(token string) right {
	granted := open
	for _, r := range []right{read, act} { // both, so that the time taken says nothing
		if want := t.of(r); want != "" && equal(token, want) {
			granted = r
		}
	}
	return granted
}

// equal compares in a time that does not depend on where two texts differ, nor on their lengths.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// The cookie of the dashboard, which can send no header of its own.
const (
	cookieName = "enricher_session"
	cookieLife = 12 * time.Hour
)

// cookie makes what proves a right for some time, without being the token. It ends with the token, too.
func (t tokens) cookie(r right, until time.Time) string {
	claim := strconv.Itoa(int(r)) + "." + strconv.FormatInt(until.Unix(), 10)
	return claim + "." + sign(t.of(r), claim)
}

func sign(token, claim string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("enricher session " + claim))
	return hex.EncodeToString(mac.Sum(nil))
}

// session returns what a cookie allows.
func (t tokens) session(value string) right {
	parts := strings.Split(value, ".")
	if len(parts) != 3 {
		return open
	}
	n, err1 := strconv.Atoi(parts[0])
	until, err2 := strconv.ParseInt(parts[1], 10, 64)
	r := right(n)
	if err1 != nil || err2 != nil || r != read && r != act || time.Now().Unix() >= until {
		return open
	}
	if token := t.of(r); token == "" || !equal(parts[2], sign(token, parts[0]+"."+parts[1])) {
		return open
	}
	return r
}

// granted returns what a request may do by what it shows, and whether it shows anything.
func (g *Gateway) granted(r *http.Request) (granted right, shown bool) {
	if !g.cfg.Access.guarded() {
		return act, true
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return act, true
	}
	if kind, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(kind, "Bearer") {
		return g.tokens.grants(strings.TrimSpace(token)), true
	}
	if c, err := r.Cookie(cookieName); err == nil {
		return g.tokens.session(c.Value), true
	}
	return open, false
}

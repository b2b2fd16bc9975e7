package asynchttp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
	n    int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.pem, _ = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign completes tmpl and signs it; the first certificate signs itself.
func (a *authority) sign(t *testing.T, tmpl *x509.Certificate) (cert *x509.Certificate, key *ecdsa.PrivateKey, certPEM, keyPEM string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.n++
	tmpl.SerialNumber, tmpl.NotBefore, tmpl.NotAfter = big.NewInt(a.n), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return cert, key, block("CERTIFICATE", der), block("PRIVATE KEY", pkcs8)
}

// client writes a certificate of that name and its key.
func (a *authority) client(t *testing.T, dir, name string) {
	t.Helper()
	_, _, cert, key := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	writeFile(t, filepath.Join(dir, "key.pem"), key)
	writeFile(t, filepath.Join(dir, "cert.pem"), cert)
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// secured serves with a certificate of a for names, else for its address, and says who calls by which protocol.
func (a *authority) secured(t *testing.T, names ...string) (url string, connections *atomic.Int64) {
	t.Helper()
	tmpl := &x509.Certificate{DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if len(names) == 0 {
		tmpl.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	cert, key, _, _ := a.sign(t, tmpl)
	connections = new(atomic.Int64)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := "nobody"
		if c := r.TLS.PeerCertificates; len(c) > 0 {
			who = c[0].Subject.CommonName
		}
		fmt.Fprintf(w, "%s by HTTP/%d", who, r.ProtoMajor)
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = discardLog()
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	srv.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		ClientAuth:   tls.VerifyClientCertIfGiven, ClientCAs: pool,
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL, connections
}

func TestCertificatesAreThoseOfTheFilesAndHTTP2Stays(t *testing.T) {
	ours, dir := newAuthority(t), t.TempDir()
	ca := writeFile(t, filepath.Join(dir, "ca.pem"), ours.pem)
	ours.client(t, dir, "me")
	local, _ := ours.secured(t)
	named, _ := ours.secured(t, "api.example.org")
	pair := "cert_file: " + filepath.Join(dir, "cert.pem") + ", key_file: " + filepath.Join(dir, "key.pem")
	for _, tc := range []struct{ name, url, tls, want string }{
		{"authority of its own", local, "ca_file: " + ca, "nobody by HTTP/2"},
		{"certificate of the client", local, "ca_file: " + ca + ", " + pair, "me by HTTP/2"},
		{"another name", named, "ca_file: " + ca + ", server_name: api.example.org", "nobody by HTTP/2"},
		{"any certificate", named, "insecure_skip_verify: true", "nobody by HTTP/2"},
		{"the system's authorities", local, "", ""},
		{"the wrong name", named, "ca_file: " + ca, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, client, _ := serve(t, nil)
			f := build(t, client, "url: "+tc.url+"\ninto: .r\nas: text\nretry: {initial: 1ms, max: 1ms}\ntls: {"+tc.tls+"}")
			got := drive(t.Context(), f, `{}`)
			if tc.want == "" {
				if got.kind() != event.Connection || got.attempts != 1 {
					t.Errorf("got %v after %d attempts, want %s after one", got.err, got.attempts, event.Connection)
				}
			} else if want := `{"r":"` + tc.want + `"}`; got.value != want {
				t.Errorf("got %s, %v; want %s", got.value, got.err, want)
			}
		})
	}
}

func TestReplacedCertificateIsUsedWithoutARestart(t *testing.T) {
	ours, dir := newAuthority(t), t.TempDir()
	ca := writeFile(t, filepath.Join(dir, "ca.pem"), ours.pem)
	ours.client(t, dir, "old")
	url, connections := ours.secured(t)
	_, client, _ := serve(t, nil)
	var logged strings.Builder
	env := functions.Env{Name: "content", HTTP: client, Logger: slog.New(slog.NewTextHandler(&logged, nil))}
	f, err := asynchttp.New(env, options(t, "url: "+url+"\ninto: .r\nas: text\ntls: {ca_file: "+ca+", cert_file: "+filepath.Join(dir, "cert.pem")+", key_file: "+filepath.Join(dir, "key.pem")+"}"))
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	call := func() string {
		got := drive(t.Context(), f, `{}`)
		if got.err != nil {
			t.Fatal(got.err)
		}
		last = got.value
		return last
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for began := time.Now(); !is(); {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("waited for %s, got %s; logged: %s", what, last, &logged)
			}
		}
	}
	until("the first certificate", func() bool { return strings.Contains(call(), "old") })
	writeFile(t, filepath.Join(dir, "key.pem"), "half a key") // nothing is lost by what cannot be used
	until("a warning", func() bool { call(); return strings.Contains(logged.String(), "cannot be used") })
	if !strings.Contains(last, "old") {
		t.Errorf("got %s, want the old certificate to stay", last)
	}
	ours.client(t, dir, "new")
	until("the new certificate", func() bool { return strings.Contains(call(), "new") })
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections, want one by each certificate", n)
	}
}

func TestEqualSettingsShareTheirConnections(t *testing.T) {
	ours := newAuthority(t)
	ca := writeFile(t, filepath.Join(t.TempDir(), "ca.pem"), ours.pem)
	url, connections := ours.secured(t)
	_, client, _ := serve(t, nil)
	for range 3 {
		f := build(t, client, "url: "+url+"\ninto: .r\nas: text\ntls: {ca_file: "+ca+"}")
		if got := drive(t.Context(), f, `{}`); got.err != nil {
			t.Fatal(got.err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections of three functions with equal settings, want 1", n)
	}
}

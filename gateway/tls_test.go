package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/gateway"
)

// certificate makes one that signs itself, and its key, as text.
func certificate(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", pkcs8)
}

func TestAClientWithACertificateMayAct(t *testing.T) {
	cert, key := certificate(t, "server")
	clientCert, clientKey := certificate(t, "client")
	foreignCert, foreignKey := certificate(t, "foreign")
	files := &gateway.TLS{CertFile: write(t, "cert", cert), KeyFile: write(t, "key", key), ClientCAFile: write(t, "ca", clientCert)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j := &asked{id: someID, picture: picture("orders", gateway.Created, gateway.Running)}
	g, stop := listening(t, l, gateway.Config{Access: gateway.Access{TLS: files}}, j)
	defer stop()
	ask := func(server, own, ownKey, path string) string {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(server))
		cfg := &tls.Config{RootCAs: roots}
		if own != "" {
			pair, err := tls.X509KeyPair([]byte(own), []byte(ownKey))
			if err != nil {
				t.Fatal(err)
			}
			cfg.Certificates = []tls.Certificate{pair}
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil } // also where it is not asked for
		}
		transport := &http.Transport{TLSClientConfig: cfg}
		defer transport.CloseIdleConnections()
		res, err := (&http.Client{Transport: transport}).Get(g.URL() + path)
		if err != nil {
			return "no connection"
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.Status[:3] + " " + string(text)
	}
	cancel := "/jobs/" + someID + "/yarn-cancel"
	same(t, "with the certificate", ask(cert, clientCert, clientKey, cancel), "202 {}")
	if got := ask(cert, "", "", cancel); !strings.HasPrefix(got, "401 ") {
		t.Errorf("without one: %s", got)
	}
	same(t, "with a foreign one", ask(cert, foreignCert, foreignKey, cancel), "no connection")
	same(t, "health, without one", ask(cert, "", "", "/healthz"), "200 ok\n")
	same(t, "asked", j.asked(), "cancel")

	newCert, newKey := certificate(t, "server, renewed")
	for path, text := range map[string]string{files.CertFile: newCert, files.KeyFile: newKey + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "renewed", ask(newCert, "", "", "/healthz"), "200 ok\n")
	same(t, "renewed, by one that knows the old", ask(cert, "", "", "/healthz"), "no connection")
}

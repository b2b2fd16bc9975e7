package kafka_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.pem, a.key = a.sign(a.cert, a.cert, nil)
	return a
}

// sign returns a certificate in PEM and its key. Without a signer it signs itself.
func (a *authority) sign(cert, parent *x509.Certificate, signer *ecdsa.PrivateKey) (string, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), key
}

// issue returns a certificate for a name, and its key, in PEM.
func (a *authority) issue(name string, ips ...net.IP) (cert, key string) {
	a.t.Helper()
	cert, private := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: ips, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// broker returns what a broker on loopback needs that has a certificate of a.
func (a *authority) broker(name string, ips ...net.IP) *tls.Config {
	a.t.Helper()
	pair, err := tls.X509KeyPair(pems(a.issue(name, ips...)))
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}
}

func pems(cert, key string) (certPEM, keyPEM []byte) { return []byte(cert), []byte(key) }

// file holds text, and may hold another later.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	rewrite(t, path, text)
	return path
}

// rewrite puts text in the place of what the file held, at one stroke.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// carry writes a record to topic "in" and reads it, over connections with TLS and a login.
func carry(t *testing.T, c *kfake.Cluster, secure *kafka.TLS, login *kafka.SASL) {
	t.Helper()
	w := sinkTo(t, c, func(cfg *kafka.SinkConfig) { cfg.TLS, cfg.SASL, cfg.Topic = secure, login, "in" })
	if err := w.send(t, streammanager.Record{Value: []byte("hello")})[0]; err != nil {
		t.Fatal(err)
	}
	r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.TLS, cfg.SASL = secure, login })
	if got := text(r.poll(t, 1)); got != "hello" {
		t.Errorf("got %q", got)
	}
}

var loopback = net.IPv4(127, 0, 0, 1)

func TestEventsAreCarriedOverTLS(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	ca := file(t, ours.pem)
	t.Run("a certificate of the authority", func(t *testing.T) {
		carry(t, secured(t, ours.broker("broker", loopback)), &kafka.TLS{CAFile: ca}, nil)
	})
	t.Run("for another name", func(t *testing.T) {
		carry(t, secured(t, ours.broker("broker.example")), &kafka.TLS{CAFile: ca, ServerName: "broker.example"}, nil)
	})
	t.Run("any certificate", func(t *testing.T) {
		carry(t, secured(t, other.broker("broker.example")), &kafka.TLS{InsecureSkipVerify: true}, nil)
	})
	t.Run("with a certificate of the client", func(t *testing.T) {
		cfg := ours.broker("broker", loopback)
		cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		cfg.ClientCAs.AddCert(parse(t, other.pem))
		cert, key := other.issue("worker")
		carry(t, secured(t, cfg), &kafka.TLS{CAFile: ca, CertFile: file(t, cert), KeyFile: file(t, key)}, nil)
	})
}

func secured(t *testing.T, cfg *tls.Config) *kfake.Cluster {
	t.Helper()
	return brokers(t, kfake.SeedTopics(1, "in"), kfake.TLS(cfg))
}

func parse(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestABrokerThatCannotBeTrustedIsSaidSo(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	for _, tt := range []struct {
		name   string
		broker *tls.Config
		client *kafka.TLS
		want   string
	}{
		{name: "another authority", broker: other.broker("broker", loopback), client: &kafka.TLS{CAFile: file(t, ours.pem)}, want: "unknown authority"},
		{name: "another host", broker: ours.broker("broker.example"), client: &kafka.TLS{CAFile: file(t, ours.pem)}, want: "127.0.0.1"},
		{name: "another name", broker: ours.broker("broker", loopback), client: &kafka.TLS{CAFile: file(t, ours.pem), ServerName: "b.example"}, want: "b.example"},
		{name: "no TLS at the client", broker: ours.broker("broker", loopback), want: "TLS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := open(t, secured(t, tt.broker), func(cfg *kafka.SourceConfig) { cfg.TLS = tt.client })
			eventually(t, "the source says why", func() bool {
				err := r.src.Health()
				return err != nil && strings.Contains(err.Error(), tt.want)
			})
		})
	}
}

func TestCertificatesAreReadAgainWhenTheirFilesChange(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	cfg := ours.broker("broker", loopback)
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	cfg.ClientCAs.AddCert(parse(t, ours.pem))
	cert, key := other.issue("worker")
	secure := kafka.TLS{CAFile: file(t, other.pem), CertFile: file(t, cert), KeyFile: file(t, key)}
	r := open(t, secured(t, cfg), func(cfg *kafka.SourceConfig) { cfg.TLS = &secure })
	unwell := func(want string) {
		t.Helper()
		eventually(t, "the source says "+want, func() bool {
			err := r.src.Health()
			return err != nil && strings.Contains(err.Error(), want)
		})
	}
	unwell("unknown authority")
	rewrite(t, secure.CAFile, ours.pem)
	unwell("tls: ") // the broker takes no certificate of the other authority
	cert, key = ours.issue("worker")
	rewrite(t, secure.CertFile, cert)
	unwell("private key does not match") // half of a change is not the end
	rewrite(t, secure.KeyFile, key)
	r.untilHeld(t, 1)
	eventually(t, "the source is well", func() bool { return r.src.Health() == nil })
}

func TestTLSThatCannotWorkIsRefusedAtOnce(t *testing.T) {
	cert, key := newAuthority(t).issue("worker")
	for _, tt := range []struct {
		name string
		tls  kafka.TLS
		want string
	}{
		{"key without certificate", kafka.TLS{KeyFile: file(t, key)}, "tls.key_file: is given without cert_file"},
		{"certificate without key", kafka.TLS{CertFile: file(t, cert)}, "tls.cert_file: is given without key_file"},
		{"no file", kafka.TLS{CAFile: filepath.Join(t.TempDir(), "none")}, "tls.ca_file: reading the certificates: open"},
		{"no certificate in it", kafka.TLS{CAFile: file(t, "text")}, "holds no certificate in PEM"},
		{"key and certificate changed places", kafka.TLS{CertFile: file(t, key), KeyFile: file(t, cert)}, "tls.cert_file: reading "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := kafka.Connection{Brokers: []string{"h:1"}, TLS: &tt.tls}
			if _, err := kafka.NewSink(kafka.SinkConfig{Connection: conn, Topic: "out"}, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("NewSink = %v, want %q", err, tt.want)
			}
		})
	}
}

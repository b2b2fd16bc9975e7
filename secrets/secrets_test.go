package secrets_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/secrets"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "file")
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pair makes a certificate that signs itself, and its key.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "me"}, NotAfter: time.Now().Add(time.Hour)}
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

func TestEachFaultOfTheFilesIsNamedByItsKey(t *testing.T) {
	cert, key := pair(t)
	c, k := write(t, "", cert), write(t, "", key)
	for _, tc := range []struct {
		name string
		tls  secrets.TLS
		key  string // "": well
	}{
		{"nothing", secrets.TLS{}, ""},
		{"all", secrets.TLS{CAFile: c, CertFile: c, KeyFile: k}, ""},
		{"no key", secrets.TLS{CertFile: c}, "cert_file"},
		{"no certificate", secrets.TLS{KeyFile: k}, "key_file"},
		{"changed places", secrets.TLS{CertFile: k, KeyFile: c}, "cert_file"},
		{"no such key", secrets.TLS{CertFile: c, KeyFile: k + "x"}, "key_file"},
		{"no authority in it", secrets.TLS{CAFile: k}, "ca_file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, err := tc.tls.Config()
			fault, ok := errors.AsType[*secrets.KeyError](err)
			if ok != (tc.key != "") || ok && fault.Key != tc.key || !ok && (err != nil || cfg == nil) {
				t.Errorf("got %v, want a fault of %q", err, tc.key)
			}
		})
	}
}

func TestStampChangesWithTheFiles(t *testing.T) {
	path := write(t, "", "a")
	s := secrets.TLS{CAFile: path}
	seen := map[string]bool{s.Stamp(): true}
	write(t, path, "abc")
	seen[s.Stamp()] = true
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	seen[s.Stamp()] = true
	if len(seen) != 3 {
		t.Errorf("stamps %v, want three", seen)
	}
	if none := (&secrets.TLS{}).Stamp(); none != "" {
		t.Errorf("without files %q, want none", none)
	}
}

func TestAReplacedSecretIsReadWithinASecond(t *testing.T) {
	path := write(t, "", "one\n")
	synctest.Test(t, func(t *testing.T) {
		f := secrets.NewFile(path)
		want := func(text string) {
			t.Helper()
			if got, err := f.Text(); got != text || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, text)
			}
		}
		want("one")
		write(t, path, "two\r\n")
		want("one")
		if got, err := f.Fresh(); got != "two" || err != nil {
			t.Errorf("fresh: got %q, %v; want two", got, err)
		}
		write(t, path, "three")
		time.Sleep(time.Second)
		want("three")
		write(t, path, "\n")
		time.Sleep(time.Second)
		if got, err := f.Text(); err == nil {
			t.Errorf("an empty file gave %q, want an error", got)
		}
	})
}

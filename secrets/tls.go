package secrets

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// TLS says how connections are protected. The zero value: TLS as the system has it. It is comparable:
// equal settings may share connections.
type TLS struct {
	Off                bool   `yaml:"-"` // it was written as false
	CAFile             string `yaml:"ca_file" doc:"certificates that servers are checked against; left out: the system's"`
	CertFile           string `yaml:"cert_file" doc:"certificate that this client shows"`
	KeyFile            string `yaml:"key_file" doc:"key of that certificate"`
	ServerName         string `yaml:"server_name" doc:"name that the server's certificate must have; left out: the host"`
	InsecureSkipVerify bool   `yaml:"insecure_skip_verify" default:"false" doc:"takes any certificate"`
}

// KeyError is what is wrong with one key.
type KeyError struct {
	Key string // ca_file, cert_file or key_file
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

func (e *KeyError) Unwrap() error { return e.Err }

func keyErrorf(key, format string, args ...any) error {
	return &KeyError{key, fmt.Errorf(format, args...)}
}

// Switch is called where true or false was written in place of a map.
func (t *TLS) Switch(on bool) { *t = TLS{Off: !on} }

// Config reads the files. What it says is a KeyError for each fault, joined.
func (t *TLS) Config() (*tls.Config, error) {
	errs := []error{t.checkPair()}
	cfg := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		cfg.RootCAs = x509.NewCertPool()
		switch {
		case err != nil:
			errs = append(errs, keyErrorf("ca_file", "reading the certificates: %w", err))
		case !cfg.RootCAs.AppendCertsFromPEM(pem):
			errs = append(errs, keyErrorf("ca_file", "%q holds no certificate in PEM", t.CAFile))
		}
	}
	if t.CertFile != "" && t.KeyFile != "" {
		cert, err := t.pair()
		errs = append(errs, err)
		cfg.Certificates = []tls.Certificate{cert}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return cfg, nil
}

func (t *TLS) checkPair() error {
	switch {
	case t.CertFile != "" && t.KeyFile == "":
		return keyErrorf("cert_file", "is given without key_file: they belong together")
	case t.CertFile == "" && t.KeyFile != "":
		return keyErrorf("key_file", "is given without cert_file: they belong together")
	}
	return nil
}

// pair reads the certificate that this client shows.
func (t *TLS) pair() (tls.Certificate, error) {
	cert, err := os.ReadFile(t.CertFile)
	if err != nil {
		return tls.Certificate{}, keyErrorf("cert_file", "reading the certificate: %w", err)
	}
	key, err := os.ReadFile(t.KeyFile)
	if err != nil {
		return tls.Certificate{}, keyErrorf("key_file", "reading the key: %w", err)
	}
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return both, keyErrorf("cert_file", "reading %q with the key_file %q: %w", t.CertFile, t.KeyFile, err)
	}
	return both, nil
}

// Stamp changes when one of the files does, or comes or goes. Without files it is "".
func (t *TLS) Stamp() string {
	var b strings.Builder
	for _, path := range []string{t.CAFile, t.CertFile, t.KeyFile} {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err != nil {
			b.WriteString("none;")
		} else {
			fmt.Fprintf(&b, "%d %d;", info.ModTime().UnixNano(), info.Size())
		}
	}
	return b.String()
}

package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
)

// TLS says how connections are protected. Its files are read again for each new connection.
type TLS struct {
	CAFile             string // PEM certificates that servers are checked against; empty: the system's
	CertFile           string // PEM certificate that this client shows; empty: none
	KeyFile            string // PEM key of that certificate
	ServerName         string // name that the server's certificate must have; empty: the host
	InsecureSkipVerify bool   // takes any certificate
}

// config reads the files. What it says is a KeyError for each fault, joined.
func (t *TLS) config() (*tls.Config, error) {
	errs := []error{t.checkPair()}
	cfg := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		cfg.RootCAs = x509.NewCertPool()
		switch {
		case err != nil:
			errs = append(errs, keyErrorf("tls.ca_file", "reading the certificates: %w", err))
		case !cfg.RootCAs.AppendCertsFromPEM(pem):
			errs = append(errs, keyErrorf("tls.ca_file", "%q holds no certificate in PEM", t.CAFile))
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

package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// TLS says how the connection is encrypted. Its files are read anew for each connection, so that
// certificates can be replaced while the job runs.
type TLS struct {
	CAFile             string // certificates that sign the brokers'; empty: the system's
	CertFile, KeyFile  string // of this client, both or none
	ServerName         string // empty: the broker's host
	InsecureSkipVerify bool
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

func (t *TLS) dialer(under dialFunc) (dialFunc, error) {
	if _, err := t.config(); err != nil {
		return nil, err
	}
	if under == nil {
		d := &net.Dialer{Timeout: 10 * time.Second}
		under = d.DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		cfg, err := t.config()
		if err != nil {
			return nil, err
		}
		if cfg.ServerName == "" {
			if cfg.ServerName, _, err = net.SplitHostPort(addr); err != nil {
				return nil, fmt.Errorf("reading broker address %q: %w", addr, err)
			}
		}
		conn, err := under(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(conn, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("tls handshake with %s: %w", addr, err), conn.Close())
		}
		return secure, nil
	}, nil
}

func (t *TLS) config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify} //nolint:gosec // the user asked for it by name
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading ca_file: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %q holds no certificate", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("cert_file and key_file go together")
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading cert_file and key_file: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// SASL says how this client shows who it is. Files are read anew at each authentication.
type SASL struct {
	Mechanism    string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
	Username     string
	Password     string
	PasswordFile string
	TokenURL     string // OAUTHBEARER: client credentials are sent here
	Scope        string // OAUTHBEARER: optional
}

func (s *SASL) mechanism() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
	case "OAUTHBEARER":
		if s.TokenURL == "" {
			return nil, errors.New("OAUTHBEARER needs token_url")
		}
		return oauth.Oauth(s.token), nil
	case "GSSAPI":
		return nil, errors.New("GSSAPI (Kerberos) is not supported; use SCRAM, OAUTHBEARER or client certificates")
	default:
		return nil, fmt.Errorf("mechanism %q is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER", s.Mechanism)
	}
	if s.Username == "" {
		return nil, fmt.Errorf("%s needs username", s.Mechanism)
	}
	if s.Mechanism == "PLAIN" {
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := s.secret()
			return plain.Auth{User: s.Username, Pass: pass}, err
		}), nil
	}
	auth := func(context.Context) (scram.Auth, error) {
		pass, err := s.secret()
		return scram.Auth{User: s.Username, Pass: pass}, err
	}
	if s.Mechanism == "SCRAM-SHA-256" {
		return scram.Sha256(auth), nil
	}
	return scram.Sha512(auth), nil
}

func (s *SASL) secret() (string, error) {
	if s.PasswordFile == "" {
		return s.Password, nil
	}
	b, err := os.ReadFile(s.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("reading password_file: %w", err)
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}

// maxTokenAnswer bounds the answer of a token server.
const maxTokenAnswer = 1 << 20

func (s *SASL) token(ctx context.Context) (oauth.Auth, error) {
	secret, err := s.secret()
	if err != nil {
		return oauth.Auth{}, err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if s.Scope != "" {
		form.Set("scope", s.Scope)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return oauth.Auth{}, fmt.Errorf("asking for a token: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(s.Username), url.QueryEscape(secret))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return oauth.Auth{}, fmt.Errorf("asking for a token: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Token string `json:"access_token"`
	}
	if resp.StatusCode != http.StatusOK {
		return oauth.Auth{}, fmt.Errorf("asking for a token: the server answered %s", resp.Status)
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxTokenAnswer)).Decode(&answer); err != nil {
		return oauth.Auth{}, fmt.Errorf("reading the token: %w", err)
	}
	if answer.Token == "" {
		return oauth.Auth{}, errors.New("reading the token: the answer has no access_token")
	}
	return oauth.Auth{Token: answer.Token}, nil
}

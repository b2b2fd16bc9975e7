package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/a0c75104/enricher/secrets"
)

// SASL says how to log in. Its files are read again for each login.
type SASL struct {
	Mechanism    string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
	Username     string // name of the user, or client id for OAUTHBEARER
	Password     string // password, or client secret for OAUTHBEARER
	PasswordFile string // file that holds the password
	TokenURL     string // where OAUTHBEARER gets its tokens
	TokenFile    string // file that holds a token for OAUTHBEARER
	Scope        string // scopes that a token is asked for, separated by spaces; empty: what the server gives
}

// String names the mechanism and the user, never a secret.
func (s SASL) String() string { return fmt.Sprintf("%s as %q", s.Mechanism, s.Username) }

// GoString is String, so that no verb of fmt prints a secret.
func (s SASL) GoString() string { return s.String() }

// MarshalText is String, so that no JSON or YAML holds a secret.
func (s SASL) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String, so that no log holds a secret.
func (s SASL) LogValue() slog.Value { return slog.StringValue(s.String()) }

// loginError adds what to do where a broker did not let this client in.
func loginError(err error) error {
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return fmt.Errorf("the login was refused: check sasl: %w", err)
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fmt.Errorf("the broker does not offer this way to log in: correct sasl.mechanism: %w", err)
	}
	return err
}

func (s *SASL) password() (string, error) {
	if s.PasswordFile == "" {
		return s.Password, nil
	}
	return secretFile("password_file", s.PasswordFile)
}

// secretFile reads the secret that key names the file of.
func secretFile(key, path string) (string, error) {
	secret, err := secrets.Read(path)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", key, err)
	}
	return secret, nil
}

// mechanism returns how the library logs in. It is asked again for each login.
func (s *SASL) mechanism() sasl.Mechanism {
	switch s.Mechanism {
	case "PLAIN":
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := s.password()
			return plain.Auth{User: s.Username, Pass: pass}, err
		})
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
		auth := func(context.Context) (scram.Auth, error) {
			pass, err := s.password()
			return scram.Auth{User: s.Username, Pass: pass}, err
		}
		if s.Mechanism == "SCRAM-SHA-256" {
			return scram.Sha256(auth)
		}
		return scram.Sha512(auth)
	}
	t := &tokens{from: s}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := t.get(ctx)
		return oauth.Auth{Token: token}, err
	})
}

// tokens keeps a token until shortly before its end.
type tokens struct {
	from *SASL

	mu    sync.Mutex // guards the rest, and lets one login ask for a token at a time
	token string
	until time.Time
}

// tokenTimeout bounds one request for a token.
const tokenTimeout = 10 * time.Second

func (t *tokens) get(ctx context.Context) (string, error) {
	if t.from.TokenFile != "" {
		return secretFile("token_file", t.from.TokenFile)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.until) {
		return t.token, nil
	}
	token, life, err := t.fetch(ctx)
	if err != nil {
		return "", fmt.Errorf("getting a token from token_url: %w", err)
	}
	t.token, t.until = token, time.Now().Add(life*8/10)
	return token, nil
}

// fetch asks by the client credentials grant.
func (t *tokens) fetch(ctx context.Context) (string, time.Duration, error) {
	secret, err := t.from.password()
	if err != nil {
		return "", 0, err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if t.from.Scope != "" {
		form.Set("scope", t.from.Scope)
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.from.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, errors.New("the URL cannot be used")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(t.from.Username), url.QueryEscape(secret))
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a redirect would carry the secret elsewhere
	}}
	resp, err := client.Do(req)
	if err != nil {
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err // without the URL, which may hold a secret
		}
		return "", 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", 0, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", 0, fmt.Errorf("status %d: check username, password and scope", resp.StatusCode)
	}
	var answer struct {
		Token     string  `json:"access_token"`
		ExpiresIn float64 `json:"expires_in"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Token == "" {
		return "", 0, errors.New("the answer holds no access_token")
	}
	return answer.Token, time.Duration(answer.ExpiresIn * float64(time.Second)), nil
}

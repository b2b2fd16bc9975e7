package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/a0c75104/enricher/secrets"
)

// ClientConfig says how to reach a gateway.
type ClientConfig struct {
	URL       string // such as http://127.0.0.1:8081, required
	TokenFile string // "": no token
	CAFile    string // certificates that the gateway is checked against; "": the system's
	CertFile  string // certificate that is shown in place of a token
	KeyFile   string
}

// Client asks a gateway.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

// NewClient opens nothing; it reads the files.
func NewClient(cfg ClientConfig) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(cfg.URL, "/"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%q is no URL of a gateway: write http://host:port", cfg.URL)
	}
	c := &Client{base: base}
	if cfg.TokenFile != "" {
		if c.token, err = secrets.Read(cfg.TokenFile); err != nil {
			return nil, fmt.Errorf("reading the token: %w", err)
		}
	}
	files := tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificates of the gateway: %w", err)
		}
		if files.RootCAs = x509.NewCertPool(); !files.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading the certificates of the gateway: %q holds none in PEM", cfg.CAFile)
		}
	}
	if cfg.CertFile != "" || cfg.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate to show: %w", err)
		}
		files.Certificates = []tls.Certificate{pair}
	}
	c.http = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &files, Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		Timeout:   30 * time.Second,
		// A token goes to the gateway that was named, nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// mostAnswer bounds what is read of an answer.
const mostAnswer = 64 << 20

// Do asks one thing, and returns the JSON that it is answered. A refusal is a RequestError.
func (c *Client) Do(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	text := []byte("{}")
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encoding a request: %w", err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json; charset=UTF-8")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking the gateway: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the gateway's answer: %w", err)
	}
	if res.StatusCode/100 == 2 && json.Valid(got) {
		return got, nil
	}
	var refused errorBody
	if json.Unmarshal(got, &refused) == nil && len(refused.Errors) > 0 {
		return nil, &RequestError{Status: res.StatusCode, Texts: refused.Errors}
	}
	return nil, fmt.Errorf("asking the gateway: %s answered %s, which is no answer of a gateway: is the URL right?", c.base.Host, res.Status)
}

// Get asks for one thing and reads the answer into v.
func (c *Client) Get(ctx context.Context, path string, v any) error {
	raw, err := c.Do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("reading the gateway's answer to %s: %w", path, err)
	}
	return nil
}

// pollEvery is how often a Client asks how far an operation is.
const pollEvery = 500 * time.Millisecond

// Operate triggers an operation, and asks under polls, which ends in a slash, until it has ended. Between two questions
// progress is called. It returns what the operation came to.
func (c *Client) Operate(ctx context.Context, method, path string, body any, polls string, progress func()) (json.RawMessage, error) {
	raw, err := c.Do(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	var begun triggered
	if err := json.Unmarshal(raw, &begun); err != nil || begun.ID == "" {
		return nil, fmt.Errorf("reading the gateway's answer to %s: %s has no request-id", path, raw)
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		var at struct {
			Status    progressID      `json:"status"`
			Operation json.RawMessage `json:"operation"`
		}
		if err := c.Get(ctx, polls+begun.ID, &at); err != nil {
			return nil, fmt.Errorf("asking for the result of operation %s, which goes on without being asked: %w", begun.ID, err)
		}
		if at.Status == completed {
			return at.Operation, failureIn(at.Operation)
		}
		progress()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("operation %s goes on, but is not waited for any more: %w", begun.ID, context.Cause(ctx))
		}
	}
}

// failureIn returns the failure of an operation, in the words of its cause.
func failureIn(operation json.RawMessage) error {
	var failed struct {
		Cause *failureCause `json:"failure-cause"`
	}
	if json.Unmarshal(operation, &failed) != nil || failed.Cause == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(failed.Cause.StackTrace, failed.Cause.Class+": "))
}

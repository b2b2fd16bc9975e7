package asynchttp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/secrets"
)

// credentials prove who asks.
type credentials interface {
	// header returns the value of Authorization. refused is one that the server did not take, "" at first;
	// where there is no other, the value is "".
	header(ctx context.Context, refused string) (string, error)
}

// authError says that there was nothing to prove with: the request was not sent, or was refused for it.
type authError struct{ err error }

func (e *authError) Error() string { return e.err.Error() }
func (e *authError) Unwrap() error { return e.err }

// credentials makes what o says, nil where it says nothing. Tokens are asked for through rt.
func (o *AuthOptions) credentials(rt http.RoundTripper) credentials {
	switch {
	case o == nil:
		return nil
	case o.Basic != nil:
		both := o.Basic.Username + ":" + o.Basic.Password.Reveal()
		return fixed("Basic " + base64.StdEncoding.EncodeToString([]byte(both)))
	case o.BearerFile != "":
		return &bearer{secrets.NewFile(o.BearerFile)}
	}
	return newTokens(o.OAuth2, rt)
}

// fixed is a value that does not change.
type fixed string

func (f fixed) header(_ context.Context, refused string) (string, error) {
	if refused != "" {
		return "", nil
	}
	return string(f), nil
}

// bearer is a token in a file.
type bearer struct{ file *secrets.File }

func (b *bearer) header(_ context.Context, refused string) (string, error) {
	read := b.file.Text
	if refused != "" {
		read = b.file.Fresh
	}
	token, err := read()
	if err != nil {
		return "", fmt.Errorf("reading bearer_file: %w", err)
	}
	if !visible(token) {
		return "", errors.New("reading bearer_file: it holds more than one token: a character of it cannot be in a header")
	}
	if value := "Bearer " + token; value != refused {
		return value, nil
	}
	return "", nil
}

// visible reports whether text may be a token in a header.
func visible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] >= 0x7f {
			return false
		}
	}
	return true
}

// send sends one step of a try. Credentials are for the server alone that the request is meant for.
func (c *call) send(r *http.Request) (*http.Response, error) {
	send := c.f.routes.send
	if c.f.auth != nil && sameServer(r.URL, c.req.url) {
		send = c.authorized
	}
	resp, err := send(r)
	if private, ok := errors.AsType[*privateError](err); ok {
		return resp, &redirectError{event.Rejected, private}
	}
	return resp, err
}

// authorized sends one request with credentials. Where the server refuses them and there are newer ones, the
// request is sent once more, as part of the same try.
func (c *call) authorized(r *http.Request) (*http.Response, error) {
	value, err := c.f.auth.header(r.Context(), "")
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes it in any case
		}
		return nil, &authError{err}
	}
	c.shown(value)
	first := r.Clone(r.Context())
	first.Header.Set("Authorization", value)
	resp, err := c.f.routes.send(first)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	setAside(resp)
	fresh, err := c.f.auth.header(r.Context(), value)
	if err == nil && fresh == "" {
		return resp, nil
	}
	if err != nil {
		return nil, &authError{fmt.Errorf("status 401, and no newer credentials: %w", err)}
	}
	c.shown(fresh)
	again := r.Clone(r.Context())
	again.Header.Set("Authorization", fresh)
	if r.Body != nil && r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, fmt.Errorf("sending the body again: %w", err)
		}
	}
	return c.f.routes.send(again)
}

// shown notes what of a value of Authorization is secret, since an answer may repeat it.
func (c *call) shown(value string) {
	_, secret, _ := strings.Cut(value, " ")
	c.secrets = append(c.secrets, secret)
	if _, ok := c.f.auth.(fixed); ok { // base64, as it was made above
		both, _ := base64.StdEncoding.DecodeString(secret)
		_, password, _ := strings.Cut(string(both), ":")
		c.secrets = append(c.secrets, password)
	}
}

// mask is text without the secrets that were shown, nor the beginning of one where the text is cut.
func (c *call) mask(text string) string {
	for _, secret := range c.secrets {
		for range 3 { // as it is, in JSON, and both within quotes of the message
			text = maskOne(text, secret)
			secret = strconv.Quote(secret)
			secret = secret[1 : len(secret)-1]
		}
	}
	return text
}

func maskOne(text, secret string) string {
	if len(secret) <= shortSecret {
		return text
	}
	text = strings.ReplaceAll(text, secret, masked)
	for _, dots := range []string{"…", "...", " ..."} { // of an excerpt, and of what a failed expression shows
		for n := min(len(secret)-1, excerptBytes); n > shortSecret && strings.Contains(text, dots); n-- {
			text = strings.ReplaceAll(text, secret[:n]+dots, masked)
		}
	}
	return text
}

const (
	masked      = "***"
	shortSecret = 2 // what is not longer is in any text
)

// setAside reads the body of a refusal, so that its connection is free: a new token may be waiting for it.
func setAside(resp *http.Response) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, drainBytes)) // what broke off is shown as far as it came
	_ = resp.Body.Close()
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

package asynchttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

const (
	tokenTimeout = 10 * time.Second
	// A failed request for a token, and one that a 401 made necessary, are not repeated for a while: all
	// workers would ask at once, and again for each event.
	tokenPause = time.Second
)

// tokens are what an authorization server gives for a client's id and secret, one at a time.
type tokens struct {
	cfg    clientcredentials.Config
	client *http.Client

	turn chan struct{} // holds one element while nobody asks; a wait for it can be ended

	mu       sync.Mutex // guards the rest
	value    string     // of Authorization; "": none yet
	renew    time.Time  // when value is to be replaced; zero: never
	ends     time.Time  // when it is good no more
	failed   error      // of the last request
	failedAt time.Time
	forcedAt time.Time // when a refused value was replaced
}

func newTokens(o *OAuth2Options, rt http.RoundTripper) *tokens {
	t := &tokens{
		cfg: clientcredentials.Config{
			ClientID: o.ClientID, ClientSecret: o.ClientSecret.Reveal(), TokenURL: o.TokenURL, Scopes: o.Scopes,
			EndpointParams: url.Values{},
		},
		client: &http.Client{Transport: rt, Timeout: tokenTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a redirect would carry the secret elsewhere
		}},
		turn: make(chan struct{}, 1),
	}
	for name, value := range o.Params {
		t.cfg.EndpointParams.Set(name, value)
	}
	if o.Audience != "" {
		t.cfg.EndpointParams.Set("audience", o.Audience)
	}
	t.turn <- struct{}{}
	return t
}

// header implements credentials. A value that is to be replaced serves on until there is another.
func (t *tokens) header(ctx context.Context, refused string) (string, error) {
	value, due := t.known(refused)
	if !due {
		return value, nil
	}
	select {
	case <-t.turn:
	default:
		if value != "" {
			return value, nil // another call asks
		}
		select {
		case <-t.turn:
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for a token: %w", context.Cause(ctx))
		}
	}
	defer func() { t.turn <- struct{}{} }()
	if value, due = t.known(refused); !due { // it came meanwhile
		return value, nil
	}
	rest, err := t.resting(refused)
	if !rest {
		var token *oauth2.Token
		token, err = t.fetch(ctx)
		if err == nil {
			t.keep(token, refused)
		} else if ctx.Err() == nil { // else it was the caller's time that ended, which says nothing about the next one
			t.miss(err)
		}
		value, _ = t.known(refused)
	}
	if value != "" {
		return value, nil
	}
	return "", err
}

// known returns the value that is good yet and was not refused, "" where there is none, and whether another is due.
func (t *tokens) known(refused string) (value string, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.value == "" || t.value == refused || !t.ends.IsZero() && !now.Before(t.ends) {
		return "", true
	}
	return t.value, !t.renew.IsZero() && !now.Before(t.renew)
}

// resting reports whether no request is made for now, and the error of the last one.
func (t *tokens) resting(refused string) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if refused != "" && !t.forcedAt.IsZero() && now.Sub(t.forcedAt) < tokenPause {
		return true, nil
	}
	return t.failed != nil && now.Sub(t.failedAt) < tokenPause, t.failed
}

func (t *tokens) keep(token *oauth2.Token, refused string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.failed, t.value = nil, token.Type()+" "+token.AccessToken
	t.renew, t.ends = time.Time{}, time.Time{}
	if !token.Expiry.IsZero() {
		life := max(token.Expiry.Sub(now), tokenPause)
		t.renew, t.ends = now.Add(life*9/10), now.Add(life)
	}
	if refused != "" {
		t.forcedAt = now
	}
}

func (t *tokens) miss(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed, t.failedAt = err, time.Now()
}

// fetch asks for a token. What it says holds neither the address asked, which may hold a secret, nor the answer.
func (t *tokens) fetch(ctx context.Context) (*oauth2.Token, error) {
	token, err := t.cfg.Token(context.WithValue(bare{ctx}, oauth2.HTTPClient, t.client))
	if err == nil && !visible(token.AccessToken+token.Type()) {
		err = errors.New("a character of it cannot be in a header")
	}
	if err == nil {
		return token, nil
	}
	var refusal *oauth2.RetrieveError
	var sending *url.Error
	switch {
	case errors.As(err, &refusal):
		err = fmt.Errorf("status %d: check client_id, client_secret, scopes and audience", refusal.Response.StatusCode)
	case errors.As(err, &sending):
		err = sending.Err
	default:
		err = errors.New("the answer holds no usable access_token")
	}
	return nil, fmt.Errorf("getting a token from token_url: %w", err)
}

// bare is a context without the values of the request that needs a token: its trace is not to see this one.
type bare struct{ context.Context }

// Value implements context.Context.
func (bare) Value(any) any { return nil }

package kafka_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
)

// doorman lets clients in that show the right token, and keeps all that were shown.
type doorman struct {
	mu    sync.Mutex // guards the rest
	right string
	also  string // right too
	shown []string
}

// oauth starts a broker that takes tokens; each login lasts for the given time, 0: for ever.
func oauth(t *testing.T, right string, lasts time.Duration) (*kfake.Cluster, *doorman) {
	t.Helper()
	c, _, _ := fake(t, 1)
	d := &doorman{right: right}
	c.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		if req.(*kmsg.SASLHandshakeRequest).Mechanism != "OAUTHBEARER" {
			resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		}
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		token := strings.TrimSuffix(strings.TrimPrefix(string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes), "n,,\x01auth=Bearer "), "\x01\x01")
		d.mu.Lock()
		defer d.mu.Unlock()
		d.shown = append(d.shown, token)
		resp.SessionLifetimeMillis = lasts.Milliseconds()
		if token != d.right && (d.also == "" || token != d.also) {
			resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
			resp.ErrorMessage = kmsg.StringPtr("the token is stale")
		}
		return resp, nil, true
	})
	return c, d
}

func (d *doorman) saw(token string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, s := range d.shown {
		if s == token {
			n++
		}
	}
	return n
}

// issuer is a server that gives tokens.
type issuer struct {
	*httptest.Server
	mu     sync.Mutex // guards the rest
	status int
	answer string // with %d for the number of the request
	forms  []string
	users  []string
}

func newIssuer(t *testing.T, status int, answer string) *issuer {
	t.Helper()
	i := &issuer{status: status, answer: answer}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		user, pass, _ := r.BasicAuth()
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		i.forms, i.users = append(i.forms, r.Method+" "+r.PostForm.Encode()), append(i.users, user+" "+pass)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(i.status)
		_, _ = fmt.Fprint(w, strings.ReplaceAll(i.answer, "%d", fmt.Sprint(len(i.forms))))
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) asked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.forms)
}

func TestATokenOfAServerIsShownAndKeptWhileItLasts(t *testing.T) {
	i := newIssuer(t, http.StatusOK, `{"access_token": "token %d", "expires_in": 3600, "token_type": "Bearer"}`)
	c, d := oauth(t, "token 1", 0)
	login := &kafka.SASL{Mechanism: "OAUTHBEARER", Username: "a client", PasswordFile: file(t, "s:cret\n"), TokenURL: i.URL + "/token", Scope: "kafka read"}
	r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.SASL = login })
	r.untilHeld(t, 1)
	if n := d.saw("token 1"); n < 2 || i.asked() != 1 {
		t.Errorf("logged in %d times with %d tokens, want several connections and one token", n, i.asked())
	}
	if i.forms[0] != "POST grant_type=client_credentials&scope=kafka+read" || i.users[0] != "a+client s%3Acret" {
		t.Errorf("asked with %q as %q", i.forms[0], i.users[0])
	}
}

func TestATokenIsRenewedBeforeItEnds(t *testing.T) {
	for answer, renewed := range map[string]bool{
		`{"access_token": "t", "expires_in": 0.1}`: true,
		`{"access_token": "t", "expires_in": 60}`:  false,
		`{"access_token": "t"}`:                    true, // nobody says how long it lasts
	} {
		t.Run(answer, func(t *testing.T) {
			i := newIssuer(t, http.StatusOK, answer)
			m := (&kafka.SASL{Mechanism: "OAUTHBEARER", Username: "u", Password: "p", TokenURL: i.URL}).LogsIn()
			logIn := func() bool {
				if _, first, err := m.Authenticate(t.Context(), "h:1"); err != nil || string(first) != "n,,\x01auth=Bearer t\x01\x01" {
					t.Fatalf("Authenticate = %q, %v", first, err)
				}
				return i.asked() > 1
			}
			if logIn() || logIn() && !renewed {
				t.Errorf("asked %d times", i.asked())
			}
			if renewed {
				eventually(t, "another token is asked for", logIn)
			}
		})
	}
}

func TestALoginThatEndsIsRepeatedWithTheTokenOfTheDay(t *testing.T) {
	c, d := oauth(t, "old", 2*time.Second)
	token := file(t, "old\n")
	r := open(t, c, func(cfg *kafka.SourceConfig) {
		cfg.SASL = &kafka.SASL{Mechanism: "OAUTHBEARER", TokenFile: token}
	})
	r.untilHeld(t, 1)
	d.mu.Lock()
	d.also = "new" // a connection may log in at any time, with either
	d.mu.Unlock()
	rewrite(t, token, "new\n")
	eventually(t, "the new token is shown", func() bool { return d.saw("new") > 1 })
	if err := r.src.Health(); err != nil || r.log.count(said) != 0 || r.heard() != "assigned 1" {
		t.Errorf("Health %v, told %q, said %s", err, r.heard(), r.log.text.String())
	}
}

func TestATokenThatIsRefusedSaysWhatTheBrokerSaid(t *testing.T) {
	c, _ := oauth(t, "right", 0)
	token := file(t, "wrong")
	r := open(t, c, func(cfg *kafka.SourceConfig) {
		cfg.SASL = &kafka.SASL{Mechanism: "OAUTHBEARER", TokenFile: token}
	})
	eventually(t, "the source says why", func() bool {
		err := r.src.Health()
		return err != nil && strings.Contains(err.Error(), "check sasl") && strings.Contains(err.Error(), "the token is stale")
	})
	rewrite(t, token, "right")
	r.untilHeld(t, 1)
}

func TestAMechanismThatIsNotOfferedIsSaidSo(t *testing.T) {
	c, _ := oauth(t, "right", 0)
	r := open(t, c, func(cfg *kafka.SourceConfig) {
		cfg.SASL = &kafka.SASL{Mechanism: "PLAIN", Username: "u", Password: "p"}
	})
	eventually(t, "the source says why", func() bool {
		err := r.src.Health()
		return err != nil && strings.Contains(err.Error(), "correct sasl.mechanism")
	})
}

func TestAServerThatGivesNoTokenIsSaidSoWithoutSecrets(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		answer string
		want   string
	}{
		{name: "refused", status: http.StatusUnauthorized, answer: "you are hunter2", want: "status 401: check username, password and scope"},
		{name: "a redirect, which would carry the secret elsewhere", status: http.StatusTemporaryRedirect, want: "status 307"},
		{name: "no JSON", status: http.StatusOK, answer: "<html>hunter2", want: "the answer holds no access_token"},
		{name: "no token", status: http.StatusOK, answer: `{"error": "hunter2"}`, want: "the answer holds no access_token"},
		{name: "nobody there", want: "connect"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := newIssuer(t, tt.status, tt.answer)
			if tt.status == 0 {
				i.Close()
			}
			s := &kafka.SASL{Mechanism: "OAUTHBEARER", Username: "u", Password: "hunter2", TokenURL: i.URL + "/?key=hunter2"}
			_, _, err := s.LogsIn().Authenticate(t.Context(), "h:1")
			if err == nil || !strings.Contains(err.Error(), "getting a token from token_url: ") || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("Authenticate = %v, want %q and no secret", err, tt.want)
			}
			if tt.status != 0 && i.asked() != 1 {
				t.Errorf("asked %d times", i.asked())
			}
		})
	}
	for key, s := range map[string]*kafka.SASL{
		"token_file: open /no/such/file":     {Mechanism: "OAUTHBEARER", TokenFile: "/no/such/file"},
		"token_file: \"/dev/null\" is empty": {Mechanism: "OAUTHBEARER", TokenFile: "/dev/null"},
		"password_file: open /no/such/file":  {Mechanism: "OAUTHBEARER", Username: "u", TokenURL: "http://localhost:1/", PasswordFile: "/no/such/file"},
	} {
		if _, _, err := s.LogsIn().Authenticate(t.Context(), "h:1"); err == nil || !strings.Contains(err.Error(), "reading "+key) {
			t.Errorf("got %v, want %s", err, key)
		}
	}
}

package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/gateway"
)

// client asks a gateway on a socket that needs a token, and shows the one that the file holds.
func client(t *testing.T, j gateway.Job, token string) *gateway.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, stop := listening(t, l, gateway.Config{Access: gateway.Access{TokenFile: write(t, "token", "right")}}, j)
	t.Cleanup(stop)
	c, err := gateway.NewClient(gateway.ClientConfig{URL: g.URL() + "/", TokenFile: write(t, "own", token)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const stopPath, pollPath = "/jobs/" + someID + "/stop", "/jobs/" + someID + "/savepoints/"

func TestAClientCarriesAnOperationToItsEnd(t *testing.T) {
	j := &asked{id: someID, picture: picture("orders", gateway.Created, gateway.Running), stop: make(chan struct{})}
	c := client(t, j, "right")
	polls := 0
	got, err := c.Operate(t.Context(), "POST", stopPath, map[string]bool{"savepoint": false, "drain": true}, pollPath, func() {
		if polls++; polls == 2 {
			close(j.stop)
		}
	})
	if err != nil || string(got) != `{"unfinished-events":7}` || polls != 2 {
		t.Errorf("got %s, %v after %d polls", got, err, polls)
	}
	j.err = errTest
	if _, err := c.Operate(t.Context(), "POST", stopPath, map[string]bool{"savepoint": false}, pollPath, func() {}); err == nil || err.Error() != "test failure" {
		t.Errorf("an operation that fails: %v", err)
	}
	j.stop = make(chan struct{})
	defer close(j.stop)
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = c.Operate(ctx, "POST", stopPath, map[string]bool{"savepoint": false}, pollPath, func() { cancel(errors.New("enough")) })
	if err == nil || !strings.Contains(err.Error(), "goes on, but is not waited for any more: enough") {
		t.Errorf("an operation that is not waited for: %v", err)
	}
}

func TestAClientTellsWhyItWasRefused(t *testing.T) {
	j := &asked{id: someID}
	var refused *gateway.RequestError
	if _, err := client(t, j, "wrong").Do(t.Context(), "PATCH", "/jobs/"+someID, nil); !errors.As(err, &refused) || refused.Status != 401 {
		t.Errorf("a wrong token: %v", err)
	}
	if _, err := client(t, j, "right").Operate(t.Context(), "POST", stopPath, nil, pollPath, nil); !errors.As(err, &refused) || refused.Status != 400 {
		t.Errorf("a stop with a savepoint: %v", err)
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer page.Close()
	c, err := gateway.NewClient(gateway.ClientConfig{URL: page.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), "GET", "/overview", nil); err == nil || !strings.Contains(err.Error(), "is the URL right?") {
		t.Errorf("something else: %v", err)
	}
	page.Close()
	if _, err := c.Do(t.Context(), "GET", "/overview", nil); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestAClientSendsItsTokenNowhereElse(t *testing.T) {
	var got []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get("Authorization")) }))
	defer elsewhere.Close()
	here := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer here.Close()
	c, err := gateway.NewClient(gateway.ClientConfig{URL: here.URL, TokenFile: write(t, "token", "t")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), "GET", "/overview", nil); err == nil || len(got) > 0 {
		t.Errorf("got %v, the other was asked with %q", err, got)
	}
}

func TestAClientIsNotMadeOfNonsense(t *testing.T) {
	for _, cfg := range []gateway.ClientConfig{
		{},
		{URL: "127.0.0.1:8081"},
		{URL: "ftp://h"},
		{URL: "http://h", TokenFile: "/nowhere"},
		{URL: "https://h", CAFile: write(t, "ca", "x")},
		{URL: "https://h", CAFile: "/nowhere"},
		{URL: "https://h", CertFile: "/nowhere"},
	} {
		if _, err := gateway.NewClient(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

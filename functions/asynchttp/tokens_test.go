package asynchttp_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/event"
)

func TestTokenIsReplacedBeforeItEndsAndServesOnWhileThereIsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, down, used := 0, false, ""
		client := cannedClient(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host != "tokens" {
				used = r.Header.Get("Authorization")
				return reply(200, `1`)
			}
			asked++
			if down {
				return reply(503, ``)
			}
			return reply(200, fmt.Sprintf(`{"access_token":"t%d","expires_in":100}`, asked), "Content-Type", "application/json")
		})
		f := build(t, client, "url: http://api/\ninto: .r\nretry: {attempts: 1}\nauth: {oauth2: {token_url: 'http://tokens/', client_id: me, client_secret: hush}}")
		want := func(token string, requests int) {
			t.Helper()
			used = ""
			got := drive(t.Context(), f, `{}`)
			if used != token || asked != requests || (got.err == nil) != (token != "") {
				t.Errorf("used %q after %d requests for a token, %v; want %q after %d", used, asked, got.err, token, requests)
			}
			if got.err != nil && got.kind() != event.Connection {
				t.Errorf("got %v, want %s", got.err, event.Connection)
			}
		}
		want("Bearer t1", 1)
		time.Sleep(89 * time.Second)
		want("Bearer t1", 1)
		time.Sleep(2 * time.Second)
		want("Bearer t2", 2)
		down = true
		time.Sleep(95 * time.Second)
		want("Bearer t2", 3) // it is good for five more seconds
		want("Bearer t2", 3) // and the server is left alone for one
		time.Sleep(6 * time.Second)
		want("", 4)
		want("", 4)
		down = false
		time.Sleep(time.Second)
		want("Bearer t5", 5)
	})
}

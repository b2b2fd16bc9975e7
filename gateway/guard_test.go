package gateway_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/gateway"
)

// write makes a file of a test.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const far = "10.0.0.1:8081"

// kept is a gateway with a token for acting and one for reading.
func kept(t testing.TB, addr string) (*served, *asked) {
	t.Helper()
	j := &asked{id: someID, picture: picture("orders", gateway.Created, gateway.Running)}
	access := gateway.Access{TokenFile: write(t, "act", "act-token\n"), ReadTokenFile: write(t, "read", "read-token\n")}
	return serve(t, addr, gateway.Config{Advertise: "gw.example.org", Access: access, ShutDown: func() { j.note("shutdown") }}, j), j
}

// acts are all requests that change something.
var acts = []string{
	"PATCH /jobs/J", "GET /jobs/J/yarn-cancel", "POST /jobs/J/stop", "PATCH /jobs/J/rescaling?parallelism=2", "PUT /jobs/J/resource-requirements",
	"POST /jobs/J/savepoints", "POST /savepoint-disposal", "POST /jobs", "DELETE /cluster", "POST /jobs/J/checkpoints", "PATCH /jobs/J/clientHeartbeat",
}

func TestReadingAndActingAreSeparateRights(t *testing.T) {
	for _, tc := range []struct {
		name, header string
		read, act    int // 0: not refused
	}{
		{"no token", "", 401, 401},
		{"a wrong token", "Authorization: Bearer nonsense", 401, 401},
		{"another scheme", "Authorization: Basic YWN0LXRva2Vu", 401, 401},
		{"the token for reading", "Authorization: Bearer read-token", 0, 403},
		{"the token for acting", "Authorization: bearer  act-token", 0, 0},
		{"a made up cookie", "Cookie: enricher_session=2.99999999999.00", 401, 401},
		{"the token as a cookie", "Cookie: enricher_session=act-token", 401, 401},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, j := kept(t, loopback)
			headers := []string{"X: y"}
			if tc.header != "" {
				headers = append(headers, tc.header)
			}
			check := func(what string, want int) {
				r := s.ask(t, strings.ReplaceAll(what, "/J", "/"+someID), `{"savepoint":false}`, headers...)
				if want != 0 {
					r.refused(t, want, "")
					if got := r.header.Get("WWW-Authenticate"); (got != "") != (want == 401) {
						t.Errorf("%s: WWW-Authenticate %q", what, got)
					}
				} else if r.status == 401 || r.status == 403 && !strings.Contains(what, "POST /jobs") {
					t.Errorf("%s: %d %s", what, r.status, r.body)
				}
			}
			for _, what := range []string{"GET /overview", "GET /jobs/J", "GET /jobmanager/config", "GET /", "GET /main.js", "GET /nothing"} {
				check(what, tc.read)
			}
			for _, what := range acts {
				check(what, tc.act)
			}
			check("POST /nothing", tc.act)
			if done := j.asked() != ""; done != (tc.act == 0) {
				t.Errorf("the job was asked %q", j.asked())
			}
			for _, path := range []string{"/healthz", "/readyz"} {
				if r := s.ask(t, "GET "+path, ""); r.status != http.StatusOK {
					t.Errorf("%s: %d", path, r.status)
				}
			}
		})
	}
}

// A page of another site has a browser send what it likes, with the cookies of the user where they go along.
func TestAPageOfAnotherSiteChangesNothing(t *testing.T) {
	for name, headers := range map[string][]string{
		"origin":                     {"Origin: https://evil.example"},
		"another port here":          {"Origin: http://127.0.0.1:3000"},
		"origin that is hidden":      {"Origin: null"},
		"cross-site":                 {"Sec-Fetch-Site: cross-site"},
		"same-site":                  {"Sec-Fetch-Site: same-site"},
		"referer":                    {"Referer: https://evil.example/page"},
		"own origin, but cross-site": {"Origin: http://" + loopback, "Sec-Fetch-Site: cross-site"},
	} {
		t.Run(name, func(t *testing.T) {
			s, j := one(t)
			for _, what := range acts {
				s.ask(t, strings.ReplaceAll(what, "/J", "/"+someID), `{"savepoint":false}`, headers...).refused(t, 403, "another site")
			}
			same(t, "asked", j.asked(), "")
			if n := strings.Count(s.log.String(), "request refused"); n != 1 {
				t.Errorf("logged %d times, want once:\n%s", n, s.log.String())
			}
		})
	}
	for name, headers := range map[string][]string{
		"the dashboard": {"Origin: http://" + loopback, "Sec-Fetch-Site: same-origin", "Referer: http://" + loopback + "/"},
		"typed":         {"Sec-Fetch-Site: none"},
		"no browser":    {},
	} {
		t.Run(name, func(t *testing.T) {
			s, j := one(t)
			s.ask(t, "GET /jobs/"+someID+"/yarn-cancel", "", headers...).is(t, 202, "{}")
			same(t, "asked", j.asked(), "cancel")
		})
	}
}

// A name of another site that leads here is how its page reads what is only meant for this machine.
func TestOnlyTheOwnHostIsAnswered(t *testing.T) {
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		addr, host  string
		ok, metrics bool
	}{
		{loopback, "127.0.0.1:8081", true, true},
		{loopback, "localhost:9000", true, true}, // a forwarded port
		{loopback, "[::1]:8081", true, true},
		{loopback, "LOCALHOST", true, true},
		{loopback, "gw.example.org", true, true},
		{loopback, "evil.example:8081", false, false},
		{loopback, "localhost.evil.example", false, false},
		{loopback, "127.0.0.1.evil.example", false, false},
		{loopback, "10.0.0.1:8081", false, false},
		{loopback, "", false, false},
		{far, "gw.example.org:8081", true, true},
		{far, "GW.example.org.", true, true},
		{far, hostname + ":8081", true, true},
		{far, "10.0.0.1:8081", true, true},
		{far, "10.0.0.2:8081", false, true}, // health and metrics are open: Prometheus and probes know other names
		{far, "evil.example", false, true},
	} {
		s, _ := kept(t, tc.addr)
		ask := func(path string) reply {
			r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
			ctx := contextWith(r, tc.addr)
			r = r.WithContext(ctx)
			r.Host = tc.host
			r.Header.Set("Authorization", "Bearer act-token")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			return reply{w.Code, w.Header(), w.Body.String()}
		}
		for path, ok := range map[string]bool{"/overview": tc.ok, "/healthz": tc.metrics} {
			if r := ask(path); ok && r.status != 200 {
				t.Errorf("at %s, Host %q: %s is answered %d %s", tc.addr, tc.host, path, r.status, r.body)
			} else if !ok {
				r.refused(t, 403, "sent to another host")
			}
		}
	}
}

func TestAnAddressThatOthersReachNeedsAGuard(t *testing.T) {
	token := write(t, "token", "t")
	for _, tc := range []struct {
		addr   string
		access gateway.Access
		off    bool
		ok     bool
	}{
		{loopback, gateway.Access{}, false, true},
		{"[::1]:1", gateway.Access{}, false, true},
		{"127.8.8.8:1", gateway.Access{}, false, true},
		{far, gateway.Access{}, false, false},
		{"0.0.0.0:8081", gateway.Access{}, false, false},
		{"[::]:8081", gateway.Access{}, false, false},
		{far, gateway.Access{}, true, true},
		{far, gateway.Access{Insecure: true}, false, true},
		{far, gateway.Access{TokenFile: token}, false, true},
		{far, gateway.Access{ReadTokenFile: token}, false, true},
		{far, gateway.Access{TokenFile: token + "x"}, false, false},
		{far, gateway.Access{TokenFile: write(t, "empty", "\n")}, false, false},
	} {
		g, err := gateway.New(gateway.Config{Access: tc.access, ControlOff: tc.off, Worker: "w"}, address(tc.addr))
		if (err == nil) != tc.ok {
			t.Errorf("%s with %+v, control off %v: %v", tc.addr, tc.access, tc.off, err)
		}
		if err == nil {
			_ = g.Close()
		}
	}
}

func TestWithControlOffOnlyHealthAndMetricsAnswer(t *testing.T) {
	s := serve(t, far, gateway.Config{ControlOff: true})
	if r := s.ask(t, "GET /healthz", ""); r.status != 200 {
		t.Errorf("/healthz: %d", r.status)
	}
	for _, what := range []string{"GET /overview", "PATCH /jobs/" + someID, "GET /login"} {
		s.ask(t, what, "").refused(t, 404, "gateway.control is off")
	}
}

func TestPathsThatLeadElsewhereAreRefused(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	for name, text := range map[string]string{"secret": "s3cret", "web/index.html": "<html>", "web/main.js": "js", "web/sub/x.css": "css"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(dir, "web", "link")); err != nil {
		t.Fatal(err)
	}
	s := serve(t, loopback, gateway.Config{Dashboard: filepath.Join(dir, "web")})
	for path, want := range map[string]string{"/": "<html>", "/index.html": "<html>", "/main.js": "js", "/sub/x.css": "css"} {
		if r := s.ask(t, "GET "+path, ""); r.status != 200 || r.body != want {
			t.Errorf("%s: %d %s, want %s", path, r.status, r.body, want)
		}
	}
	for _, path := range []string{
		"/../secret", "/sub/../../secret", "/%2e%2e/secret", "/..%2fsecret", "/sub/..%2f..%2fsecret", "/..%5csecret", "/link", "/sub", "/main.js%00", "/.", "//../secret", "/v1/../secret",
		"/jobs/../secret", "/taskmanagers/..%2f..",
	} {
		r := s.ask(t, "GET "+path, "")
		if r.errorsOf(t); r.status/100 != 4 || strings.Contains(r.body, "s3cret") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if _, err := gateway.New(gateway.Config{Dashboard: filepath.Join(dir, "nowhere")}, address(loopback)); err == nil {
		t.Error("a directory that is not there was taken")
	}
}

func TestALargeBodyIsRefused(t *testing.T) {
	s, j := one(t)
	big := strings.Repeat("x", 1<<20+1)
	s.ask(t, "POST /jobs/"+someID+"/stop", big).refused(t, 413, "larger than 1048576 bytes")
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/jobs/"+someID+"/stop", io.MultiReader(strings.NewReader(big))) // of unknown length
	r.Host = loopback
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	reply{w.Code, w.Header(), w.Body.String()}.refused(t, 413, "larger than 1048576 bytes")
	same(t, "asked", j.asked(), "")
}

func TestALoginGivesACookieThatIsNotTheToken(t *testing.T) {
	act, readFile := write(t, "act", "act-token"), write(t, "read", "read-token")
	synctest.Test(t, func(t *testing.T) {
		j := &asked{id: someID, picture: picture("orders", gateway.Created, gateway.Running)}
		s := serve(t, loopback, gateway.Config{Access: gateway.Access{TokenFile: act, ReadTokenFile: readFile}}, j)
		page := s.ask(t, "GET /", "", "Accept: text/html,*/*")
		if page.status != 303 || page.header.Get("Location") != "login" {
			t.Errorf("a page without a login: %d to %q", page.status, page.header.Get("Location"))
		}
		if form := s.ask(t, "GET /login", ""); form.status != 200 || !strings.Contains(form.body, "<form method=\"post\">") || form.header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("the form: %d %s", form.status, form.body)
		}
		login := func(token string, headers ...string) reply {
			headers = append(headers, "Content-Type: application/x-www-form-urlencoded")
			return s.ask(t, "POST /login", url.Values{"token": {token}}.Encode(), headers...)
		}
		login("wrong").refused(t, 401, "The token is wrong.")
		login("").refused(t, 401, "The token is wrong.")
		login("act-token", "Origin: http://evil.example").refused(t, 403, "another site")
		cookieOf := func(token string) string {
			r := login(token)
			set := r.header.Get("Set-Cookie")
			if r.status != 303 || !strings.Contains(set, "; HttpOnly") || !strings.Contains(set, "; SameSite=Strict") || strings.Contains(set, token) {
				t.Fatalf("%d %q", r.status, set)
			}
			value, _, _ := strings.Cut(set, ";")
			return "Cookie: " + value
		}
		reads, writes := cookieOf("read-token"), cookieOf("act-token")
		cancel := "GET /jobs/" + someID + "/yarn-cancel"
		if r := s.ask(t, "GET /overview", "", reads); r.status != 200 {
			t.Errorf("reading: %d %s", r.status, r.body)
		}
		s.ask(t, cancel, "", reads).refused(t, 403, "to read, not to act")
		s.ask(t, cancel, "", strings.Replace(reads, "=1.", "=2.", 1)).refused(t, 401, "wrong")
		s.ask(t, cancel, "", writes).is(t, 202, "{}")
		time.Sleep(12 * time.Hour)
		s.ask(t, cancel, "", writes).refused(t, 401, "expired")
		writes = cookieOf("act-token")
		if err := os.WriteFile(act, []byte("another"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s.ask(t, cancel, "", writes).refused(t, 401, "wrong")
		s.ask(t, cancel, "", "Authorization: Bearer act-token").refused(t, 401, "wrong")
		s.ask(t, cancel, "", "Authorization: Bearer another").is(t, 202, "{}")
		if log := s.log.String(); strings.Contains(log, "act-token") || strings.Contains(log, "read-token") {
			t.Errorf("the log has a token:\n%s", log)
		}
	})
}

func TestARefusalIsLoggedOnceAMinute(t *testing.T) {
	act := write(t, "act", "act-token")
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, loopback, gateway.Config{Access: gateway.Access{TokenFile: act}})
		for range 100 {
			s.ask(t, "GET /overview", "", "Authorization: Bearer no").refused(t, 401, "wrong")
		}
		if n := strings.Count(s.log.String(), "request refused"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		time.Sleep(time.Minute)
		s.ask(t, "GET /overview", "", "Authorization: Bearer no").refused(t, 401, "wrong")
		if log := s.log.String(); strings.Count(log, "request refused") != 2 || !strings.Contains(log, "more_before=99") {
			t.Errorf("logged:\n%s", log)
		}
	})
}

// A gateway on a real socket: what half-open connections and several requests at once do.
func TestTheServerEndsConnectionsThatSendNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := listening(t, l, gateway.Config{})
	defer stop()
	res, err := http.Get(s.URL() + "/v1/overview")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("overview: %d", res.StatusCode)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /overview HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(c); err != nil {
		t.Errorf("half a request was answered %q, and the connection goes on: %v", text, err)
	}
}

func TestAnEndpointIsOneThatOthersReach(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ advertise, listen, want string }{
		{"", "127.0.0.1:80", "127.0.0.1:80"},
		{"", "[::]:80", name + ":80"},
		{"", "0.0.0.0:80", name + ":80"},
		{"h", "0.0.0.0:80", "h:80"},
		{"h:81", "0.0.0.0:80", "h:81"},
		{"[::1]", "0.0.0.0:80", "[::1]:80"},
	} {
		same(t, tc.advertise+" at "+tc.listen, gateway.Endpoint(tc.advertise, address(tc.listen)), tc.want)
	}
}

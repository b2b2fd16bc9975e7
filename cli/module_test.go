package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// ownModule makes of dir a module that uses this checkout.
func ownModule(t testing.TB, dir string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	goSum, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/a0c75104/enricher"
	own := strings.Replace(string(goMod), "module "+module, "module example.org/mine", 1)
	write(t, dir, "go.mod", own+fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, root))
	write(t, dir, "go.sum", string(goSum))
}

// A function that is written in a module of its own is checked, listed and run like those built in.
func TestFunctionsOfAnotherModule(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/module",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"status": status},
		Setup: func(env *testscript.Env) error {
			ownModule(t, env.WorkDir)
			output(t, command(env.WorkDir, "go", "build", "-o", "mine", "."))
			env.Setenv("PATH", env.WorkDir+string(os.PathListSeparator)+env.Getenv("PATH"))
			api := newWordAPI()
			env.Defer(api.Close)
			env.Setenv("API", strings.TrimPrefix(api.URL, "http://"))
			env.Setenv("API_KEY", "open sesame")
			return nil
		},
		RequireExplicitExec: true,
	})
}

type connectionNumber struct{}

// newWordAPI starts an API that knows all words but "unheard", and is busy when it is first asked for
// "flaky". Its answers say over which connection, and at which try, they were given.
func newWordAPI() *httptest.Server {
	var mu sync.Mutex // guards all below
	connections, tries := 0, map[string]int{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		tries[r.URL.String()]++
		try := tries[r.URL.String()]
		mu.Unlock()
		word := r.URL.Query().Get("word")
		switch {
		case r.URL.Path == "/synonym" && r.Header.Get("Authorization") != "Bearer open sesame":
			w.WriteHeader(http.StatusUnauthorized)
		case word == "unheard":
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Path == "/synonym" && word == "flaky" && try == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			of, _ := json.Marshal(word) // a text always has one
			of = []byte(strings.ReplaceAll(string(of), `\u0026`, "&"))
			fmt.Fprintf(w, `{"of":%s,"connection":%d,"try":%d}`, of, r.Context().Value(connectionNumber{}), try)
		}
	}))
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		mu.Lock()
		defer mu.Unlock()
		connections++
		return context.WithValue(ctx, connectionNumber{}, connections)
	}
	s.Start()
	return s
}

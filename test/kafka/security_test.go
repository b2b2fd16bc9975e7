//go:build unix

package kafka_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/test/kafka/cluster"
)

// connection is what a pipeline file has under kafka:, with settings beside the brokers.
func connection(c *cluster.Cluster, settings ...string) string {
	return "{" + strings.Join(append([]string{fmt.Sprintf(`brokers: ["%s"]`, strings.Join(c.Brokers(), `", "`))}, settings...), ", ") + "}"
}

// Source, sinks and group speak TLS, and show a certificate that the brokers ask for.
func TestCertificatesOnBothSidesCarryAJobThatIsStoppedAndKilled(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Security: cluster.Security{TLS: true, ClientCerts: true}})
	cert, key, err := c.Certificate("worker")
	must(t, err)
	u := newSuite(t, c, setup{connection: connection(c, fmt.Sprintf("tls: {ca_file: %q, cert_file: %q, key_file: %q}", c.CAFile(), cert, key))})
	u.begin()
	w := u.start()
	for range rounds(1, 5) {
		u.rounds++
		u.working(w)
		u.stop(w)
		w = u.start()
		u.working(w)
		u.crash(w)
		w = u.start()
	}
	u.progress(300)
	u.check(0)
}

// The password of a user is changed while a worker runs. Its logins expire soon, and are refused then: it waits, says
// so, and goes on by itself when its file has the new password, or the brokers the old one.
func TestAWorkerWhosePasswordWasChangedGoesOnWithTheNewOne(t *testing.T) {
	const user = "worker"
	c := cluster.Start(t, cluster.Options{Security: cluster.Security{TLS: true, Users: map[string]string{user: "first"}, Reauth: 2 * time.Second}})
	file := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(file, []byte("first"), 0o600))
	u := newSuite(t, c, setup{connection: connection(c, fmt.Sprintf("tls: {ca_file: %q}", c.CAFile()),
		fmt.Sprintf("sasl: {mechanism: SCRAM-SHA-256, username: %s, password_file: %q}", user, file))})
	u.begin()
	w := u.start()
	u.working(w)
	known := "first"
	for i := range rounds(2, 12) {
		u.rounds++
		next := fmt.Sprintf("password %d", i)
		over := u.fault()
		must(t, c.SetPassword(t.Context(), user, next))
		waitFor(t, "the worker says that it cannot log in", func() bool {
			status, text, err := w.Ready(t.Context())
			return err == nil && status == http.StatusServiceUnavailable && strings.Contains(strings.ToLower(text), "sasl")
		})
		if i%2 == 0 {
			must(t, os.WriteFile(file, []byte(next), 0o600))
			known = next
		} else {
			must(t, c.SetPassword(t.Context(), user, known))
		}
		waitFor(t, "the worker is well again", func() bool {
			status, _, err := w.Ready(t.Context())
			return err == nil && status == http.StatusOK
		})
		over(0)
		u.progress(200)
	}
	u.check(taken) // a worker that cannot log in loses its place in the group
}

package kafka_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// guarded starts a broker that asks for the login of user u with password p.
func guarded(t *testing.T, mechanism string, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	return brokers(t, append(opts, kfake.SeedTopics(1, "in"), kfake.EnableSASL(), kfake.Superuser(mechanism, "u", "p"))...)
}

var mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

func TestEventsAreCarriedWithALogin(t *testing.T) {
	for _, mechanism := range mechanisms {
		t.Run(mechanism, func(t *testing.T) {
			carry(t, guarded(t, mechanism), nil, &kafka.SASL{Mechanism: mechanism, Username: "u", Password: "p"})
			carry(t, guarded(t, mechanism), nil, &kafka.SASL{Mechanism: mechanism, Username: "u", PasswordFile: file(t, "p\n")})
		})
	}
	t.Run("over TLS", func(t *testing.T) {
		ours := newAuthority(t)
		c := guarded(t, "PLAIN", kfake.TLS(ours.broker("broker", loopback)))
		carry(t, c, &kafka.TLS{CAFile: file(t, ours.pem)}, &kafka.SASL{Mechanism: "PLAIN", Username: "u", Password: "p"})
	})
}

func TestAPasswordIsReadAgainWhenItsFileChanges(t *testing.T) {
	for _, mechanism := range mechanisms {
		t.Run(mechanism, func(t *testing.T) {
			login := &kafka.SASL{Mechanism: mechanism, Username: "u", PasswordFile: file(t, "old")}
			r := open(t, guarded(t, mechanism), func(cfg *kafka.SourceConfig) { cfg.SASL = login })
			eventually(t, "the source is unwell", func() bool { return r.src.Health() != nil && r.log.count(said) == 1 })
			rewrite(t, login.PasswordFile, "p\r\n")
			r.untilHeld(t, 1)
			eventually(t, "the source is well", func() bool { return r.src.Health() == nil })
			if n := r.log.count(said); n != 1 {
				t.Errorf("it was said %d times:\n%s", n, r.log.text.String())
			}
		})
	}
}

func TestARefusedLoginSaysWhatTheBrokerSaid(t *testing.T) {
	c := guarded(t, "PLAIN")
	login := &kafka.SASL{Mechanism: "PLAIN", Username: "u", Password: "p"}
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, Err: kerr.SaslAuthenticationFailed, Count: -1})
	r := open(t, c, func(cfg *kafka.SourceConfig) { cfg.SASL = login })
	w := sinkTo(t, c, func(cfg *kafka.SinkConfig) { cfg.SASL, cfg.Topic = login, "in" })
	answer := make(chan error, 1)
	w.Produce(t.Context(), &streammanager.Record{Value: []byte("x")}, func(err error) { answer <- err })
	for end, health := range map[string]func() error{"source": r.src.Health, "sink": w.Health} {
		eventually(t, "the "+end+" says why", func() bool {
			err := health()
			return err != nil && strings.Contains(err.Error(), "SASL_AUTHENTICATION_FAILED") && strings.Contains(err.Error(), "check sasl")
		})
	}
	refused.Remove()
	r.poll(t, 1)
	if err := <-answer; err != nil {
		t.Errorf("the record that waited was told %v", err)
	}
	eventually(t, "both are well", func() bool { return r.src.Health() == nil && w.Health() == nil })
}

func TestALoginThatCannotWorkIsRefusedAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		sasl kafka.SASL
		want string
	}{
		{"GSSAPI", kafka.SASL{Mechanism: "GSSAPI"}, "mechanism: GSSAPI (Kerberos) is not supported: use SCRAM-SHA-512, or OAUTHBEARER"},
		{"an unknown mechanism", kafka.SASL{Mechanism: "SCRAM", Username: "u", Password: "p"}, `mechanism: "SCRAM" is not one of PLAIN`},
		{"no user", kafka.SASL{Mechanism: "PLAIN", Password: "p"}, "username: is required by PLAIN"},
		{"no password", kafka.SASL{Mechanism: "SCRAM-SHA-256", Username: "u"}, "password: is required"},
		{"nothing at all", kafka.SASL{Mechanism: "SCRAM-SHA-256"}, "username: is required by SCRAM-SHA-256\nsasl.password: is required"},
		{"two passwords", kafka.SASL{Mechanism: "SCRAM-SHA-512", Username: "u", Password: "p", PasswordFile: "f"}, "password_file: is given beside password"},
		{"a scope of a password", kafka.SASL{Mechanism: "PLAIN", Username: "u", Password: "p", Scope: "s"}, "scope: belongs to OAUTHBEARER"},
		{"no token", kafka.SASL{Mechanism: "OAUTHBEARER", Username: "u", Password: "p"}, "token_url: is required by OAUTHBEARER, or give token_file"},
		{"two tokens", kafka.SASL{Mechanism: "OAUTHBEARER", TokenURL: "https://h/", TokenFile: "f"}, "token_file: is given beside token_url"},
		{"no client", kafka.SASL{Mechanism: "OAUTHBEARER", TokenURL: "https://h/", Password: "p"}, "username: is required by OAUTHBEARER"},
		{"no secret", kafka.SASL{Mechanism: "OAUTHBEARER", TokenURL: "https://h/", Username: "u"}, "password: is required"},
		{"a secret in the clear", kafka.SASL{Mechanism: "OAUTHBEARER", TokenURL: "http://h.example/", Username: "u", Password: "p"}, "token_url: must be https"},
		{"no URL", kafka.SASL{Mechanism: "OAUTHBEARER", TokenURL: "h", Username: "u", Password: "p"}, "token_url: is no URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := kafka.Connection{Brokers: []string{"h:1"}, SASL: &tt.sasl}
			if _, err := kafka.NewSink(kafka.SinkConfig{Connection: conn, Topic: "out"}, nil); err == nil || !strings.Contains(err.Error(), "sasl."+tt.want) {
				t.Errorf("NewSink = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestNothingPrintsAPassword(t *testing.T) {
	s := kafka.SASL{Mechanism: "PLAIN", Username: "u", Password: "hunter2"}
	conn := kafka.Connection{Brokers: []string{"h:1"}, SASL: &s}
	var log lines
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("m", "sasl", s, "pointer", &s, "conn", &conn)
	}
	doc, err := json.Marshal(map[string]any{"sasl": s, "pointer": &s})
	if err != nil {
		t.Fatal(err)
	}
	all := log.text.String() + string(doc) + fmt.Sprintf("%v %+v %#v %s %q %v %+v %#v", s, s, s, s, s, &s, &s, &s) + fmt.Sprintf("%v %+v", conn, conn)
	if strings.Contains(all, "hunter2") {
		t.Errorf("the password is in %s", all)
	}
	if n := strings.Count(all, `PLAIN as `); n < 10 {
		t.Errorf("the login is named %d times in %s", n, all)
	}
}

package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a0c75104/enricher/pipeline"
)

// What one file says of the process's server holds for all that share it.
func TestTheGatewayIsPutTogetherFromAllFiles(t *testing.T) {
	one := loadAs(t, "a.yaml", "name: a\n"+ends+"gateway: {store_duration: 1m, control: \"off\"}\n", pipeline.Options{})
	two := loadAs(t, "b.yaml", "name: b\n"+ends+"gateway: {listen: '10.0.0.1:80', token_file: t, read_token_file: r, advertise: 'h:1', dashboard: web, tls: {cert_file: c, key_file: k, client_ca_file: a}}\n", pipeline.Options{})
	for _, g := range []func() (string, bool){
		func() (string, bool) {
			g, d := pipeline.Gateway(one, two)
			return fmt.Sprintf("%+v %+v", g, *g.Access.TLS), d
		},
		func() (string, bool) {
			g, d := pipeline.Gateway(two, one)
			return fmt.Sprintf("%+v %+v", g, *g.Access.TLS), d
		},
	} {
		got, isDefault := g()
		for _, want := range []string{"Listen:10.0.0.1:80", "Advertise:h:1", "ControlOff:true", "Store:1m0s", "Dashboard:web", "TokenFile:t", "ReadTokenFile:r", "{CertFile:c KeyFile:k ClientCAFile:a}"} {
			if !strings.Contains(got, want) || isDefault {
				t.Errorf("%s has no %s", got, want)
			}
		}
	}
	if g, _ := pipeline.Gateway(loadAs(t, "c.yaml", "name: c\n"+ends, pipeline.Options{})); g.ControlOff || g.Store != 5*time.Minute {
		t.Errorf("left out: %+v", g)
	}
}

func TestFilesThatDifferAboutTheGatewayAreRefused(t *testing.T) {
	for key, values := range map[string][2]string{
		"control": {"on", "off"}, "store_duration": {"1m", "2m"}, "dashboard": {"a", "b"}, "token_file": {"a", "b"}, "insecure": {"true", "false"},
		"tls": {"{cert_file: a, key_file: b}", "{cert_file: a, key_file: c}"},
	} {
		text := func(name, value string) string {
			return "name: " + name + "\n" + ends + "gateway: {" + key + ": " + value + "}\n"
		}
		a := loadAs(t, "a.yaml", text("a", values[0]), pipeline.Options{})
		b := loadAs(t, "b.yaml", text("b", values[1]), pipeline.Options{})
		same := loadAs(t, "c.yaml", text("c", values[0]), pipeline.Options{})
		if got := pipeline.Together(a, b); len(got) != 1 || got[0].Path != "gateway."+key || !strings.Contains(got[0].Error(), "a process has one") {
			t.Errorf("%s: got %v", key, got)
		}
		if got := pipeline.Together(a, same); len(got) > 0 {
			t.Errorf("%s, the same in both: got %v", key, got)
		}
	}
}

func TestAPipelineTellsWhatItsStagesAreCalledAndNoSecret(t *testing.T) {
	text := "name: p\nkafka: {brokers: [h:9092], sasl: {mechanism: PLAIN, username: u, password: '${PASSWORD}'}}\nsource: {kafka: {topics: [a, b]}}\n" +
		"process:\n  - {name: first, jq: .a = 1}\n  - jq: .b = 1\nsink: {kafka: {topic: out}}\nrestart: {attempts: 3}\n"
	t.Setenv("PASSWORD", "hunter2")
	p, err := pipeline.Load(write(t, "p.yaml", text), pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(p.Labels()), "{a, b first, jq out}"; got != want {
		t.Errorf("labels %s, want %s", got, want)
	}
	if got, want := p.RestartText(), "after 1s, doubled up to 1m0s, at most 3 times in a row"; got != want {
		t.Errorf("restart %q, want %q", got, want)
	}
	got := fmt.Sprint(p.Settings())
	for _, want := range []string{"{kafka.brokers[0] h:9092}", "{name p}", "{process[1].jq .b = 1}", "{kafka.sasl.password ${PASSWORD}}", "{source.kafka.topics[1] b}"} {
		if !strings.Contains(got, want) {
			t.Errorf("settings %s, want %s among them", got, want)
		}
	}
	if strings.Contains(got, "hunter2") {
		t.Errorf("settings tell a secret: %s", got)
	}
}

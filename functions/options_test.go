package functions_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/jq"
)

func TestSize(t *testing.T) {
	for _, test := range []struct {
		text  string
		bytes int64
		shown string
		wrong string
	}{
		{"0B", 0, "0B", ""},
		{"512B", 512, "512B", ""},
		{"64MiB", 64 << 20, "64MiB", ""},
		{"1GiB", 1 << 30, "1GiB", ""},
		{"1024KiB", 1 << 20, "1MiB", ""},
		{"10kB", 10_000, "10kB", ""},
		{"3 MB", 3_000_000, "3MB", ""},
		{"2GB", 2_000_000_000, "2GB", ""},
		{"8589934591GiB", 8589934591 << 30, "8589934591GiB", ""},
		{"9223372036854775807B", math.MaxInt64, "9223372036854775807B", ""},
		{"8589934592GiB", 0, "", "too large"},
		{"64", 0, "", "write 64B"},
		{"", 0, "", "no size"},
		{"MiB", 0, "", "no size"},
		{"-1MiB", 0, "", "no size"},
		{"1.5MiB", 0, "", "no size"},
		{"1mib", 0, "", "no size"},
		{"1KB", 0, "", "no size"},
	} {
		var s functions.Size
		err := s.UnmarshalText([]byte(test.text))
		if test.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%q: got %v, %v; want an error with %q", test.text, s, err, test.wrong)
			}
			continue
		}
		if err != nil || s.Bytes() != test.bytes || s.String() != test.shown || s.IsZero() != (test.bytes == 0) {
			t.Errorf("%q: got %d, %q, %v; want %d, %q", test.text, s, s, err, test.bytes, test.shown)
		}
	}
}

func TestDuration(t *testing.T) {
	for _, test := range []struct {
		text  string
		want  time.Duration
		wrong string
	}{
		{"500ms", 500 * time.Millisecond, ""},
		{"1m30s", 90 * time.Second, ""},
		{"0", 0, ""},
		{"0s", 0, ""},
		{"10", 0, "write 10s"},
		{"1.5", 0, "write 1.5s"},
		{"-3", 0, "no unit"},
		{"-3s", 0, "negative"},
		{"soon", 0, "no duration"},
		{"", 0, "no duration"},
		{"1d", 0, "no duration"},
	} {
		var d functions.Duration
		err := d.UnmarshalText([]byte(test.text))
		if test.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%q: got %v, %v; want an error with %q", test.text, d, err, test.wrong)
			}
			continue
		}
		if err != nil || d.Duration() != test.want || d.IsZero() != (test.want == 0) {
			t.Errorf("%q: got %v, %v; want %v", test.text, d, err, test.want)
		}
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	const text = "hunter2"
	s := functions.NewSecret(text)
	type holder struct {
		S functions.Secret
		P *functions.Secret
	}
	h := holder{S: s, P: &s}
	shown := map[string]string{"error": fmt.Errorf("using %v: %w", s, errors.New("no")).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s"} {
		shown[verb] = fmt.Sprintf(verb, s)
		shown[verb+" in a struct"] = fmt.Sprintf(verb, h)
		shown[verb+" behind a pointer"] = fmt.Sprintf(verb, h.P)
	}
	j, err := json.Marshal(h)
	shown["JSON"] = string(j) + fmt.Sprint(err)
	y, err := yaml.Marshal(map[string]any{"s": s, "p": &s})
	shown["YAML"] = string(y) + fmt.Sprint(err)
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("log", "s", s, "p", &s, "h", h)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("log", "s", s, "p", &s, "h", h)
	shown["slog"] = b.String()
	for how, got := range shown {
		if strings.Contains(got, text) || strings.Contains(got, fmt.Sprintf("%x", text)) {
			t.Errorf("%s shows the secret: %s", how, got)
		}
	}
	for _, how := range []string{"%v", "JSON", "YAML", "slog"} {
		if !strings.Contains(shown[how], "***") {
			t.Errorf("%s shows no stars: %s", how, shown[how])
		}
	}
	var read functions.Secret
	if err := read.UnmarshalText([]byte(text)); err != nil || read.Reveal() != text || read.IsZero() || !(functions.Secret{}).IsZero() {
		t.Errorf("got %q, %v", read.Reveal(), err)
	}
}

func TestOptionTypesCheckTheirText(t *testing.T) {
	for _, test := range []struct {
		option     encoding.TextUnmarshaler
		good, bad  string
		badMessage string
	}{
		{&functions.Path{}, `.a["b c"][0]`, `.a[]`, "not a plain path"},
		{&functions.Expr{}, `.a == 1`, `.a ==`, "ends too early"},
		{&functions.AnswerExpr{}, `.a == $status`, `$stats`, "variable not defined"},
		{&functions.Template{}, `x \(.a)`, `x \(.a`, "not closed"},
		{&functions.Program{}, `.a = 1`, `.a = foo`, "function not defined"},
	} {
		zero, ok := test.option.(interface {
			IsZero() bool
			fmt.Stringer
		})
		if !ok || !zero.IsZero() {
			t.Errorf("%T: a fresh one is not zero", test.option)
			continue
		}
		_ = zero.String() // does not panic
		err := test.option.UnmarshalText([]byte(test.bad))
		if err == nil || !strings.Contains(err.Error(), test.badMessage) || !zero.IsZero() {
			t.Errorf("%T: %q gave %v, want an error with %q", test.option, test.bad, err, test.badMessage)
		}
		if err := test.option.UnmarshalText([]byte(test.good)); err != nil || zero.IsZero() || zero.String() == "" {
			t.Errorf("%T: %q gave %v, %v", test.option, test.good, zero, err)
		}
	}
}

func TestSyntaxErrorsCarryTheirPlace(t *testing.T) {
	var e functions.Expr
	s, ok := errors.AsType[*jq.SyntaxError](e.UnmarshalText([]byte(".a | foo")))
	if !ok || s.Offset != 5 {
		t.Errorf("got %v", s)
	}
}

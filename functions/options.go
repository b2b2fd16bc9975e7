package functions

import (
	"encoding"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions/jq"
)

// The option types check their text as it is loaded. The zero value of each is an option left out.
var (
	_ encoding.TextUnmarshaler = (*Path)(nil)
	_ encoding.TextUnmarshaler = (*Expr)(nil)
	_ encoding.TextUnmarshaler = (*AnswerExpr)(nil)
	_ encoding.TextUnmarshaler = (*Template)(nil)
	_ encoding.TextUnmarshaler = (*Program)(nil)
	_ encoding.TextUnmarshaler = (*Size)(nil)
	_ encoding.TextUnmarshaler = (*Duration)(nil)
	_ encoding.TextUnmarshaler = (*Secret)(nil)
)

// Path is a plain path into the value, such as .a.b[0].
type Path struct {
	event.Path
	set bool
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Path) UnmarshalText(text []byte) error {
	q, err := event.ParsePath(string(text))
	if err != nil {
		return err
	}
	*p = Path{Path: q, set: true}
	return nil
}

// IsZero reports whether the option was left out.
func (p Path) IsZero() bool { return !p.set }

// Expr is a jq expression. The methods of jq.Expr are at hand unless it was left out.
type Expr struct{ *jq.Expr }

// UnmarshalText implements encoding.TextUnmarshaler. The error is a *jq.SyntaxError.
func (e *Expr) UnmarshalText(text []byte) error {
	x, err := jq.Compile(string(text))
	if err != nil {
		return err
	}
	e.Expr = x
	return nil
}

// IsZero reports whether the option was left out.
func (e Expr) IsZero() bool { return e.Expr == nil }

// String returns the text for a message: cut where it is long, and without the values of ${NAME}.
func (e Expr) String() string {
	if e.Expr == nil {
		return ""
	}
	return e.Name()
}

// AnswerExpr is a jq expression about an answer. Beside the variables of the event it may name $status and
// $response_headers, whose values come from who evaluates it by OnAnswer.
type AnswerExpr struct{ Expr }

// UnmarshalText implements encoding.TextUnmarshaler. The error is a *jq.SyntaxError.
func (e *AnswerExpr) UnmarshalText(text []byte) error {
	x, err := jq.Compile(string(text), "status", "response_headers")
	if err != nil {
		return err
	}
	e.Expr = Expr{x}
	return nil
}

// Numeric is the ability of an option type to be written as a number too.
type Numeric interface{ Numeric() bool }

// Template is text with interpolated jq. The methods of jq.Template are at hand unless it was left out.
type Template struct{ *jq.Template }

// UnmarshalText implements encoding.TextUnmarshaler. The error is a *jq.SyntaxError.
func (t *Template) UnmarshalText(text []byte) error {
	x, err := jq.CompileTemplate(string(text))
	if err != nil {
		return err
	}
	t.Template = x
	return nil
}

// IsZero reports whether the option was left out.
func (t Template) IsZero() bool { return t.Template == nil }

// String returns the text for a message: cut where it is long, and without the values of ${NAME}.
func (t Template) String() string {
	if t.Template == nil {
		return ""
	}
	return t.Name()
}

// Program is a jq program that processes events, the option of the function jq.
type Program struct{ *jq.Func }

// UnmarshalText implements encoding.TextUnmarshaler. The error is a *jq.SyntaxError.
func (p *Program) UnmarshalText(text []byte) error {
	f, err := jq.NewFunc(string(text))
	if err != nil {
		return err
	}
	p.Func = f
	return nil
}

// IsZero reports whether the option was left out.
func (p Program) IsZero() bool { return p.Func == nil }

// String returns the text for a message: cut where it is long, and without the values of ${NAME}.
func (p Program) String() string {
	if p.Func == nil {
		return ""
	}
	return p.Name()
}

// Size is a number of bytes, written as a whole number and a unit: 512B, 64MiB, 10kB.
type Size int64

var units = []struct {
	name  string
	bytes int64
}{
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"B", 1},
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	t := string(text)
	for _, u := range units {
		number, ok := strings.CutSuffix(t, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is no size: write a whole number and a unit, such as 64MiB", t)
		}
		if n > math.MaxInt64/u.bytes {
			return fmt.Errorf("%q is too large a size", t)
		}
		*s = Size(n * u.bytes)
		return nil
	}
	if n, err := strconv.ParseInt(t, 10, 64); err == nil && n >= 0 {
		return fmt.Errorf("%q has no unit: write %sB, or one of kB, KiB, MB, MiB, GB, GiB", t, t)
	}
	return fmt.Errorf("%q is no size: write a whole number and a unit, such as 64MiB", t)
}

// String spells the size with the unit that needs the fewest digits and no fraction.
func (s Size) String() string {
	shortest := ""
	for _, u := range units {
		if int64(s)%u.bytes != 0 {
			continue
		}
		if t := strconv.FormatInt(int64(s)/u.bytes, 10) + u.name; shortest == "" || len(t) < len(shortest) {
			shortest = t
		}
	}
	if s == 0 {
		return "0B"
	}
	return shortest
}

// Bytes returns the size as a number.
func (s Size) Bytes() int64 { return int64(s) }

// IsZero reports whether the size is 0.
func (s Size) IsZero() bool { return s == 0 }

// Duration is a time span as Go writes it: 500ms, 1m30s.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	t := string(text)
	if _, err := strconv.ParseFloat(t, 64); err == nil && t != "0" {
		return fmt.Errorf("%q has no unit: write %ss", t, t)
	}
	v, err := time.ParseDuration(t)
	if err != nil {
		return fmt.Errorf("%q is no duration: write a number and a unit, such as 500ms or 1m30s", t)
	}
	if v < 0 {
		return fmt.Errorf("%q is negative", t)
	}
	*d = Duration(v)
	return nil
}

func (d Duration) String() string { return time.Duration(d).String() }

// Duration returns the span as Go's type.
func (d Duration) Duration() time.Duration { return time.Duration(d) }

// IsZero reports whether the span is 0.
func (d Duration) IsZero() bool { return d == 0 }

// Secret is text that is never printed: String, fmt, YAML, JSON and slog show ***.
type Secret struct{ text string }

const hidden = "***"

// NewSecret hides text.
func NewSecret(text string) Secret { return Secret{text: text} }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Secret) UnmarshalText(text []byte) error {
	s.text = string(text)
	return nil
}

// Reveal returns the text. Callers do not log it or put it into an error.
func (s Secret) Reveal() string { return s.text }

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.text == "" }

func (s Secret) String() string { return hidden }

// Format implements fmt.Formatter for all verbs.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, hidden) }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON implements json.Marshaler.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// MarshalYAML implements yaml.Marshaler.
func (s Secret) MarshalYAML() (any, error) { return hidden, nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

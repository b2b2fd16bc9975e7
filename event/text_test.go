package event_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/a0c75104/enricher/event"
)

// TestEveryCharacterIsJudgedAsByTheStandardLibrary tries all sequences of two bytes outside ASCII and,
// of three and four, those around every border of UTF-8.
func TestEveryCharacterIsJudgedAsByTheStandardLibrary(t *testing.T) {
	try := func(b ...byte) {
		raw := append(append([]byte(`"`), b...), '"')
		if got, want := event.Valid(raw) == nil, utf8.Valid(raw) && json.Valid(raw); got != want {
			t.Fatalf("Valid(%q) = %v, want %v", raw, got, want)
		}
	}
	borders := []byte{'x', 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff}
	for a := 0; a < 256; a++ {
		try(byte(a))
		for b := 0; b < 256; b++ {
			if a >= 0x80 {
				try(byte(a), byte(b))
			}
		}
		for _, b := range borders {
			for _, c := range borders {
				if a < 0x80 {
					continue
				}
				try(byte(a), b, c)
				for _, d := range borders {
					try(byte(a), b, c, d)
				}
			}
		}
	}
}

// TestStringsStopAtTheRightByte puts each byte at each place of strings of all lengths around eight.
func TestStringsStopAtTheRightByte(t *testing.T) {
	for n := range 20 {
		for at := range n {
			for c := range 256 {
				raw := []byte(`"` + strings.Repeat("~", n) + `"`)
				raw[1+at] = byte(c)
				if got, want := event.Valid(raw) == nil, json.Valid(raw) && utf8.Valid(raw); got != want {
					t.Fatalf("Valid(%q) = %v, want %v", raw, got, want)
				}
			}
		}
	}
}

func TestUnquoteReadsOneString(t *testing.T) {
	for raw, want := range map[string]string{
		`""`:                            "",
		`"plain"`:                       "plain",
		`"\"\\\/\b\f\n\r\t"`:            "\"\\/\b\f\n\r\t",
		`"\u0041\u00e9\u20AC"`:          "Aé€",
		`"\ud83d\ude00"`:                "😀",
		`"\ud83d"`:                      "\ufffd",
		`"\ude00\ud83d"`:                "\ufffd\ufffd",
		`"\ud83dx\ude00"`:               "\ufffdx\ufffd",
		`"\ud83d\u0041"`:                "\ufffdA",
		`"\ud83d\ud83d\ude00"`:          "\ufffd😀",
		`"\ud83dxxde00"`:                "\ufffdxxde00",
		`"\ud83dxude00"`:                "\ufffdxude00",
		`"\ud83d\nde00"`:                "\ufffd\nde00",
		`"\ud83d\\ude00"`:               "\ufffd\\ude00",
		"\"\u2028 <>& é\"":              "\u2028 <>& é",
		`"9007199254740993 \u0000 end"`: "9007199254740993 \x00 end",
	} {
		if got, err := event.Unquote([]byte(raw)); got != want || err != nil {
			t.Errorf("Unquote(%s) = %q, %v; want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{"", `"`, "1", "null", "{}", `"a`, `"a" `, ` "a"`, `"a""b"`, "\"\xff\"", "\"\n\"", `"\x"`} {
		if got, err := event.Unquote([]byte(raw)); err == nil {
			t.Errorf("Unquote(%q) = %q, want an error", raw, got)
		}
	}
}

// A text may be as large as an answer is allowed to be, and copies of it on the way count nowhere.
func TestATextIsDecodedIntoItselfAlone(t *testing.T) {
	for name, piece := range map[string]string{
		"plain": "some words of it", "escaped": `a line\n`, "pairs": `\ud83d\ude00`, "halves": `\ud83d,`, "wide": "é\\t",
	} {
		raw := []byte(`"` + strings.Repeat(piece, 1<<20/len(piece)) + `"`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		text, err := event.UnquoteHalves(raw, func(rune) string { return "\xed\xa0\xbd" })
		runtime.ReadMemStats(&after)
		if err != nil || len(text) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(len(raw)+64<<10) {
			t.Errorf("%s: decoding %d bytes allocated %d, want one copy", name, len(raw), took)
		}
	}
}

func TestAppendStringEscapesOnlyWhatMustBe(t *testing.T) {
	for s, want := range map[string]string{
		"":                  `""`,
		"a/b<c>&'":          `"a/b<c>&'"`,
		"\"\\":              `"\"\\"`,
		"\b\f\n\r\t":        `"\b\f\n\r\t"`,
		"\x00\x1f\x7f":      "\"\\u0000\\u001f\x7f\"",
		"é€😀\u2028":         "\"é€😀\u2028\"",
		"bad \xff\xed\xa0.": "\"bad \ufffd\ufffd\ufffd.\"",
	} {
		if got := string(event.AppendString([]byte("x"), s)); got != "x"+want {
			t.Errorf("AppendString(x, %q) = %s, want x%s", s, got, want)
		}
	}
}

func TestEqualValuesHaveOneCanonicalSpelling(t *testing.T) {
	for raw, want := range map[string]string{
		` "a" `:                              `"a"`,
		`"\u0061\/\u00E9"`:                   `"a/é"`,
		`"\u000a\u0001"`:                     `"\n\u0001"`,
		`"\uD83D\uDE00"`:                     `"😀"`,
		`"\uD800"`:                           `"\ud800"`,
		`"\uDC00\uD800"`:                     `"\udc00\ud800"`,
		`1.0`:                                `1.0`,
		`1`:                                  `1`,
		`9007199254740993`:                   `9007199254740993`,
		`-1E+400`:                            `-1E+400`,
		`null`:                               `null`,
		` [ 1 , "\u0061" , [ ] , { } ] `:     `[1,"a",[],{}]`,
		`{"b": 1, "a" : {"d":2,"c":[3, 4]}}`: `{"a":{"c":[3,4],"d":2},"b":1}`,
		`{"\u0062":1,"a":2}`:                 `{"a":2,"b":1}`,
		`{"a!":1,"a":2,"a\"":3}`:             `{"a":2,"a!":1,"a\"":3}`,
		`{"a":1,"b":0,"\u0061":2}`:           `{"a":1,"a":2,"b":0}`,
		`{"":1}`:                             `{"":1}`,
	} {
		got, err := event.AppendCanonical([]byte("x"), []byte(raw))
		if string(got) != "x"+want || err != nil {
			t.Errorf("AppendCanonical(x, %s) = %s, %v; want x%s", raw, got, err, want)
		}
	}
}

func TestEqualNamesKeepTheirOrderInCanonicalSpelling(t *testing.T) {
	var raw, want strings.Builder
	for i := range 40 {
		fmt.Fprintf(&raw, `"b":%d,"a":%d,`, i, i)
		fmt.Fprintf(&want, `"a":%d,`, i)
	}
	for i := range 40 {
		fmt.Fprintf(&want, `"b":%d,`, i)
	}
	got, err := event.AppendCanonical(nil, []byte("{"+strings.TrimSuffix(raw.String(), ",")+"}"))
	if string(got) != "{"+strings.TrimSuffix(want.String(), ",")+"}" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestCanonicalSpellingRefusesBadAndDeepValues(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat("]", n) }
	for _, raw := range []string{"", "x", "1 2", "\"\xff\"", nested(129), `{"a":` + nested(128) + `}`, nested(20000)} {
		if got, err := event.AppendCanonical(nil, []byte(raw)); err == nil {
			t.Errorf("AppendCanonical(%.40q) = %.40q, want an error", raw, got)
		}
	}
	if _, err := event.AppendCanonical(nil, []byte(nested(128))); err != nil {
		t.Errorf("128 levels: %v", err)
	}
}

package event

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Valid returns what keeps raw from being one JSON text by RFC 8259 in valid UTF-8, with white space
// around it at most.
func Valid(raw []byte) error {
	s := scanner{b: raw}
	if _, ok := s.text(nil, 0); !ok {
		return s.failure()
	}
	return nil
}

// Unquote returns the string that raw spells in JSON, quotes included. Half of a surrogate pair
// becomes U+FFFD, as in encoding/json.
func Unquote(raw []byte) (string, error) { return UnquoteHalves(raw, nil) }

// UnquoteHalves is Unquote that writes what half says for half of a surrogate pair, three bytes at most; nil: U+FFFD.
// It allocates the string alone, and once: texts may be as large as an answer.
func UnquoteHalves(raw []byte, half func(rune) string) (string, error) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", fmt.Errorf("reading a string: not in double quotes: %q", clip(raw))
	}
	s := scanner{b: raw}
	switch end := s.str(0); {
	case end < 0:
		return "", fmt.Errorf("reading a string: %w", s.failure())
	case end < len(raw):
		return "", fmt.Errorf("reading a string: something follows it at byte %d", end)
	}
	inner := raw[1 : len(raw)-1]
	if !s.escaped {
		return string(inner), nil
	}
	var out strings.Builder
	out.Grow(len(inner)) // an escape is longer than what it spells
	for {
		at := bytes.IndexByte(inner, '\\')
		if at < 0 {
			out.Write(inner)
			return out.String(), nil
		}
		out.Write(inner[:at])
		r, size := character(inner[at:])
		if half != nil && utf16.IsSurrogate(r) {
			out.WriteString(half(r))
		} else {
			out.WriteRune(r) // half of a pair is no rune, so it becomes U+FFFD
		}
		inner = inner[at+size:]
	}
}

// character returns the first character of a valid string and how many bytes spell it. Half of a
// surrogate pair is returned as that half.
func character(b []byte) (rune, int) {
	if b[0] != '\\' {
		return utf8.DecodeRune(b)
	}
	switch c := b[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default:
		return rune(c), 2
	}
	r, _ := hex4(b, 2)
	if utf16.IsSurrogate(r) && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		low, _ := hex4(b, 8)
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return r, 6
}

// spells reports whether raw, the valid inside of a string, spells s.
func spells(raw []byte, s string) bool {
	for len(raw) > 0 {
		r, size := character(raw)
		if utf16.IsSurrogate(r) {
			r = utf8.RuneError
		}
		want, width := utf8.DecodeRuneInString(s)
		if width == 0 || r != want {
			return false
		}
		raw, s = raw[size:], s[width:]
	}
	return s == ""
}

// AppendString appends s as JSON spells it: escaped is only what must be. Bytes that are not UTF-8
// become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		dst = appendCharacter(dst, r)
		i += size
	}
	return append(dst, '"')
}

func appendCharacter(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if r < ' ' || utf16.IsSurrogate(r) {
		return fmt.Appendf(dst, `\u%04x`, r)
	}
	return utf8.AppendRune(dst, r)
}

// clip shortens what an error message shows.
func clip(raw []byte) []byte { return raw[:min(len(raw), 40)] }

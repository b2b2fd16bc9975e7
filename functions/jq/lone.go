package jq

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/itchyny/gojq"

	"github.com/a0c75104/enricher/event"
)

// A JSON string may hold an escape that names half of a surrogate pair alone, for which Go has no text. Such
// a half is kept as the three bytes that UTF-8 would have for it, if it allowed that: no other string has
// them, and marshal spells them as the escape again. gojq takes them for three broken characters, so that
// within it each half is one private character instead.
const (
	firstHalf, lastHalf       = 0xD800, 0xDFFF
	firstPrivate, lastPrivate = 0x10F800, 0x10FFFF
)

var errPrivate = errors.New("a string has half of a surrogate pair, and one the character U+10F800 or one above it: no expression can tell them apart")

// appendHalf appends the three bytes of a half.
func appendHalf(dst []byte, half rune) []byte {
	return append(dst, 0xE0|byte(half>>12), 0x80|byte(half>>6)&0x3F, 0x80|byte(half)&0x3F)
}

// halfAt returns the half that s begins with.
func halfAt(s string) (rune, bool) {
	if len(s) < 3 || s[0] != 0xED || s[1] < 0xA0 || s[1] > 0xBF || s[2]&0xC0 != 0x80 {
		return 0, false
	}
	return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), true
}

// unquoteHalves is unquote that keeps halves; lone reports whether there are any.
func unquoteHalves(raw []byte) (s string, lone bool, err error) {
	s, err = event.UnquoteHalves(raw, func(half rune) string {
		lone = true
		return string(appendHalf(nil, half))
	})
	return s, lone, err
}

// private returns v with a private character for each half.
func private(v any) (any, error) {
	var failed error
	out := mapText(v, func(s string) string {
		if strings.ContainsFunc(s, isPrivate) {
			failed = errPrivate
		}
		var b []byte
		for i := 0; i < len(s); {
			if half, ok := halfAt(s[i:]); ok {
				b = utf8.AppendRune(b, firstPrivate+half-firstHalf)
				i += 3
				continue
			}
			b = append(b, s[i])
			i++
		}
		return string(b)
	})
	return out, failed
}

// public returns v with the halves for their private characters.
func public(v any) any {
	return mapText(v, func(s string) string {
		if !strings.ContainsFunc(s, isPrivate) {
			return s
		}
		var b []byte
		for _, r := range s {
			if isPrivate(r) {
				b = appendHalf(b, r-firstPrivate+firstHalf)
			} else {
				b = utf8.AppendRune(b, r)
			}
		}
		return string(b)
	})
}

func isPrivate(r rune) bool { return firstPrivate <= r && r <= lastPrivate }

// mapText returns a copy of v with f of each string and name.
func mapText(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = mapText(e, f)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[f(k)] = mapText(e, f)
		}
		return out
	default:
		return v
	}
}

// anyText reports whether f is true of a string or name in v.
func anyText(v any, f func(string) bool) bool {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return anyText(e, f) })
	case map[string]any:
		for k, e := range v {
			if f(k) || anyText(e, f) {
				return true
			}
		}
	}
	return false
}

// hasHalves reports whether a string in v holds a half.
func hasHalves(v any) bool { return anyText(v, func(s string) bool { return !utf8.ValidString(s) }) }

// appendHalves appends v as JSON, with an escape for each half.
func appendHalves(dst []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case string:
		return appendText(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendHalves(dst, e); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case map[string]any:
		dst = append(dst, '{')
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for i, k := range keys {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendText(dst, k); err != nil {
				return nil, err
			}
			if dst, err = appendHalves(append(dst, ':'), v[k]); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	default:
		raw, err := gojq.Marshal(v)
		return append(dst, raw...), err
	}
}

func appendText(dst []byte, s string) ([]byte, error) {
	dst = append(dst, '"')
	start := 0
	flush := func(end int) error {
		raw, err := gojq.Marshal(s[start:end])
		if err == nil {
			dst = append(dst, raw[1:len(raw)-1]...)
		}
		return err
	}
	for i := 0; i < len(s); i++ {
		half, ok := halfAt(s[i:])
		if !ok {
			continue
		}
		if err := flush(i); err != nil {
			return nil, err
		}
		dst = fmt.Appendf(dst, `\u%04x`, half)
		start = i + 3
		i += 2
	}
	err := flush(len(s))
	return append(dst, '"'), err
}

// checkHalves refuses a value for a function that looks at bytes or code points.
func checkHalves(v, lone any) any {
	if lone != true || !anyText(v, func(s string) bool { return strings.ContainsFunc(s, isPrivate) }) {
		return v
	}
	raw, err := appendHalves(nil, public(v))
	if err != nil {
		return err
	}
	return fmt.Errorf("%s has half of a surrogate pair, which stands for no bytes", cut(string(raw), nameBytes))
}

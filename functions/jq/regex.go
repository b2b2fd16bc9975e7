package jq

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxPatterns bounds the compiled regular expressions that are kept: a program may make them of its data.
const maxPatterns = 256

var (
	patterns   = map[[2]string]*pattern{}
	patternsMu sync.Mutex // guards patterns

	nativeMatch = native("_match($a; $b; $c)", "$a", "$b", "$c")
)

// pattern is a regular expression as jq's functions take it. They report an empty match that follows a
// match at once, which the standard library leaves out; probe, a character and then the expression, finds it.
type pattern struct {
	*regexp.Regexp
	probe  *regexp.Regexp
	global bool
}

// compilePattern returns the pattern and text for gojq's _match, or what gojq says of them.
func compilePattern(v, re, flags any, testing bool) (p *pattern, text string, failure any) {
	text, ok := v.(string)
	src, ok2 := re.(string)
	fs, ok3 := flags.(string)
	if !ok || !ok2 || !ok3 && flags != nil {
		return nil, "", nativeMatch(v, re, flags, testing)
	}
	key := [2]string{src, fs}
	patternsMu.Lock()
	p = patterns[key]
	patternsMu.Unlock()
	if p != nil {
		return p, text, nil
	}
	prefix := ""
	if strings.Contains(fs, "i") {
		prefix = "(?i)"
	}
	if strings.Contains(fs, "m") {
		prefix = "(?s)" + prefix
	}
	r, err := regexp.Compile(prefix + src)
	if err != nil || strings.Trim(fs, "gim") != "" {
		return nil, "", nativeMatch("", re, flags, testing)
	}
	p = &pattern{Regexp: r, global: strings.Contains(fs, "g")}
	if probe, err := regexp.Compile(`\A(?s:.)(?:` + prefix + src + `)`); err == nil {
		p.probe = probe
	}
	patternsMu.Lock()
	defer patternsMu.Unlock()
	if len(patterns) >= maxPatterns {
		clear(patterns)
	}
	patterns[key] = p
	return p, text, nil
}

// find returns the places of the matches and of their groups.
func (p *pattern) find(s string) [][]int {
	if !p.global {
		return p.FindAllStringSubmatchIndex(s, 1)
	}
	found := p.FindAllStringSubmatchIndex(s, -1)
	if p.probe == nil {
		return found
	}
	out := make([][]int, 0, len(found))
	for i, x := range found {
		out = append(out, x)
		if x[0] == x[1] || i+1 < len(found) && found[i+1][0] == x[1] {
			continue
		}
		if y := p.emptyAt(s, x[1]); y != nil {
			out = append(out, y)
		}
	}
	return out
}

// emptyAt returns the empty match at a place behind a character.
func (p *pattern) emptyAt(s string, at int) []int {
	_, w := utf8.DecodeLastRuneInString(s[:at])
	x := p.probe.FindStringSubmatchIndex(s[at-w:])
	if x == nil || x[1] != w {
		return nil
	}
	y := []int{at, at}
	for _, i := range x[2:] {
		if i >= 0 {
			i += at - w
		}
		y = append(y, i)
	}
	return y
}

// captures are the groups of one match; start is the place of the match in characters.
func (p *pattern) captures(s string, x []int, start int) []any {
	out := make([]any, 0, len(x)/2-1)
	for j := 2; j < len(x); j += 2 {
		var name any
		if n := p.SubexpNames()[j/2]; n != "" {
			name = n
		}
		c := map[string]any{"name": name, "offset": -1, "length": 0, "string": nil}
		if from, to := x[j], x[j+1]; from >= 0 {
			c["offset"] = start + distance(s, x[0], from)
			c["length"] = utf8.RuneCountInString(s[from:to])
			c["string"] = s[from:to]
		}
		out = append(out, c)
	}
	return out
}

// distance counts the characters from one place to another, which may lie before it.
func distance(s string, from, to int) int {
	if to < from {
		return -utf8.RuneCountInString(s[to:from])
	}
	return utf8.RuneCountInString(s[from:to])
}

// matches is gojq's _match, which counts the characters before each match from the start of the text and
// so takes hours for what this does in seconds.
func matches(v, re, flags any) any {
	p, s, failure := compilePattern(v, re, flags, false)
	if p == nil {
		return failure
	}
	found := p.find(s)
	out := make([]any, len(found))
	at, chars := 0, 0
	for i, x := range found {
		chars += distance(s, at, x[0])
		at = x[0]
		out[i] = map[string]any{
			"offset":   chars,
			"length":   utf8.RuneCountInString(s[x[0]:x[1]]),
			"string":   s[x[0]:x[1]],
			"captures": p.captures(s, x, chars),
		}
	}
	return out
}

func tests(v, re, flags any) any {
	p, s, failure := compilePattern(v, re, flags, true)
	if p == nil {
		return failure
	}
	return p.MatchString(s)
}

// gaps returns the text before each match, the groups of each, and the text after the last.
func gaps(v, re, flags any) any {
	p, s, failure := compilePattern(v, re, flags, false)
	if p == nil {
		return failure
	}
	found := p.find(s)
	list := make([]any, len(found))
	at := 0
	for i, x := range found {
		groups := map[string]any{}
		for j := 2; j < len(x); j += 2 {
			if name := p.SubexpNames()[j/2]; name == "" {
				continue
			} else if groups[name] = nil; x[j] >= 0 {
				groups[name] = s[x[j]:x[j+1]]
			}
		}
		list[i] = map[string]any{"before": s[min(at, x[0]):x[0]], "groups": groups}
		at = x[1]
	}
	return map[string]any{"list": list, "after": s[at:]}
}

// glue puts the texts together that sub makes of each match: the first of each, the second of each, and
// so on, each followed by what comes after the last match. Without any the text stays as it was.
func glue(v, was, after any) any {
	list, _ := v.([]any)
	tail, _ := after.(string)
	total := 0
	var out []*strings.Builder
	for _, e := range list {
		texts, _ := e.([]any)
		for i, t := range texts {
			s, ok := t.(string)
			if !ok {
				return fmt.Errorf("a replacement is not text")
			}
			if i == len(out) {
				out = append(out, &strings.Builder{})
			}
			if total += len(s); total > maxBuilt {
				return tooLarge("the text")
			}
			out[i].WriteString(s)
		}
	}
	if len(out) == 0 {
		return []any{was}
	}
	results := make([]any, len(out))
	for i, b := range out {
		b.WriteString(tail)
		results[i] = b.String()
	}
	return results
}

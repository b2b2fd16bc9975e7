package cases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// mostDifferences are shown of one value.
	mostDifferences = 20
	// shownBytes are shown of one part of a value.
	shownBytes = 160
	// mostAligned of a case's outputs are looked at to find which of them is missing; of more, those at one place are paired.
	mostAligned = 1000
)

// difference says in what got is not what was wanted, place by place where both are JSON; nothing: it is.
func difference(want, got []byte) []string {
	if bytes.Equal(want, got) {
		return nil
	}
	w, err1 := parsed(want)
	g, err2 := parsed(got)
	if err1 != nil || err2 != nil {
		return []string{contrast("", string(got), string(want))}
	}
	var d differ
	d.compare("", w, g)
	if len(d.out) > mostDifferences {
		d.out = append(d.out[:mostDifferences], fmt.Sprintf("and %d more", len(d.out)-mostDifferences))
	}
	return d.out
}

// parsed reads one JSON text, with numbers as they are spelled.
func parsed(raw []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err = d.Decode(&v); err == nil {
		if _, more := d.Token(); more != io.EOF {
			return nil, fmt.Errorf("reading JSON: there is more than one value")
		}
	}
	return v, err
}

type differ struct{ out []string }

func (d *differ) say(path, format string, args ...any) {
	if path == "" {
		path = "."
	}
	d.out = append(d.out, path+": "+fmt.Sprintf(format, args...))
}

func (d *differ) compare(path string, want, got any) {
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			d.objects(path, w, g)
			return
		}
	case []any:
		if g, ok := got.([]any); ok {
			d.lists(path, w, g)
			return
		}
	case string:
		if g, ok := got.(string); ok && g != w {
			d.out = append(d.out, contrast(path, g, w))
			return
		}
	}
	if !equal(want, got) {
		d.say(path, "got %s, want %s", shown(got), shown(want))
	}
}

// equal compares values of which not both are objects or lists.
func equal(a, b any) bool {
	switch a.(type) {
	case map[string]any, []any:
		return false
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

func (d *differ) objects(path string, want, got map[string]any) {
	for _, k := range sortedKeys(want, got) {
		at := path + step(k)
		w, wanted := want[k]
		g, there := got[k]
		switch {
		case !there:
			d.say(at, "is missing, want %s", shown(w))
		case !wanted:
			d.say(at, "got %s, which is not expected", shown(g))
		default:
			d.compare(at, w, g)
		}
	}
}

func (d *differ) lists(path string, want, got []any) {
	for i := range max(len(want), len(got)) {
		at := path + "[" + strconv.Itoa(i) + "]"
		if path == "" {
			at = "." + at
		}
		switch {
		case i >= len(got):
			d.say(at, "is missing, want %s", shown(want[i]))
		case i >= len(want):
			d.say(at, "got %s, which is not expected", shown(got[i]))
		default:
			d.compare(at, want[i], got[i])
		}
	}
}

var word = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// step is a key as a path of jq has it.
func step(key string) string {
	if word.MatchString(key) {
		return "." + key
	}
	return "[" + strconv.Quote(key) + "]"
}

// shown is a value as JSON, cut.
func shown(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return short(strings.TrimSuffix(b.String(), "\n"))
}

// quoted is a text in quotes, cut.
func quoted(s string) string { return short(strconv.Quote(s)) }

func short(s string) string {
	if len(s) <= shownBytes {
		return s
	}
	cut := shownBytes
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + fmt.Sprintf("… (%d bytes)", len(s))
}

// contrast shows two texts around the first place in which they differ.
func contrast(path, got, want string) string {
	if path != "" {
		path += ": "
	}
	if len(got) <= shownBytes && len(want) <= shownBytes {
		return fmt.Sprintf("%sgot %q, want %q", path, got, want)
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	window := func(s string) string {
		from, to := max(0, at-shownBytes/4), min(len(s), at+shownBytes/2)
		for from > 0 && !utf8.RuneStart(s[from]) {
			from--
		}
		for to < len(s) && !utf8.RuneStart(s[to]) {
			to++
		}
		text := strconv.Quote(s[min(from, to):to])
		if from > 0 {
			text = "…" + text
		}
		if to < len(s) {
			text += "…"
		}
		return text
	}
	return fmt.Sprintf("%sdiffers from byte %d on: got %s (%d bytes), want %s (%d bytes)", path, at, window(got), len(got), window(want), len(want))
}

// align pairs two lists: equal ones first, in order, then what lies between them one by one. -1 stands for none.
func align(wants, gots int, same func(w, g int) bool) (pairs [][2]int) {
	if wants == gots && wants > mostAligned {
		for i := range wants {
			pairs = append(pairs, [2]int{i, i})
		}
		return pairs
	}
	// longest[i][j] is how many of want[i:] and got[j:] can be paired as equal.
	longest := make([][]int, wants+1)
	equal := make([][]bool, wants)
	for i := range longest {
		longest[i] = make([]int, gots+1)
	}
	for i := wants - 1; i >= 0; i-- {
		equal[i] = make([]bool, gots)
		for j := gots - 1; j >= 0; j-- {
			if equal[i][j] = same(i, j); equal[i][j] {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	var ws, gs []int
	flush := func() {
		for n := range max(len(ws), len(gs)) {
			p := [2]int{-1, -1}
			if n < len(ws) {
				p[0] = ws[n]
			}
			if n < len(gs) {
				p[1] = gs[n]
			}
			pairs = append(pairs, p)
		}
		ws, gs = nil, nil
	}
	i, j := 0, 0
	for i < wants || j < gots {
		switch {
		case i < wants && j < gots && equal[i][j]:
			flush()
			pairs = append(pairs, [2]int{i, j})
			i, j = i+1, j+1
		case j == gots || i < wants && longest[i+1][j] >= longest[i][j+1]:
			ws = append(ws, i)
			i++
		default:
			gs = append(gs, j)
			j++
		}
	}
	flush()
	return slices.Clip(pairs)
}

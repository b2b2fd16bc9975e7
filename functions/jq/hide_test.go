package jq_test

import (
	"strings"
	"testing"

	"github.com/a0c75104/enricher/functions/jq"
)

// hush hides the word hush.
func hush(text string) string { return strings.ReplaceAll(text, "hush", "***") }

func TestWhatIsHiddenIsInNoMessage(t *testing.T) {
	ctx, ev := t.Context(), newEvent(`{"n":1,"p":".."}`)
	long := strings.Repeat("x", 115) + "hush"
	expr := func(src string) error {
		e, err := jq.Compile(src)
		if err != nil {
			t.Fatal(err)
		}
		e.Hide(hush)
		_, err = e.JSON(ctx, ev)
		return err
	}
	program := func(src string) error {
		f, err := jq.NewFunc(src)
		if err != nil {
			t.Fatal(err)
		}
		f.Hide(hush)
		_, err = f.Process(ctx, ev)
		return err
	}
	address := func(src string) error {
		u, err := jq.CompileTemplate(src)
		if err != nil {
			t.Fatal(err)
		}
		u.Hide(hush)
		_, err = u.URL(ctx, ev)
		return err
	}
	for name, err := range map[string]error{
		"expression":                   expr(`.n + "hush"`),
		"expression without result":    expr(`"hush" | empty`),
		"expression with two results":  expr(`"hush", 1`),
		"expression that is cut there": expr(`"` + long + `" | error`),
		"assignment":                   program(`.a = .n + "hush"`),
		"update":                       program(`.n |= . + "hush"`),
		"sum":                          program(`.n += "hush"`),
		"selection":                    program(`select(.n + "hush")`),
		"program that rewrites":        program(`map_values(. + "hush")`),
		"template":                     address(`https://h/\(.none // empty | "hush")`),
		"missing value of a template":  address(`https://h/\(if .n == "hush" then 1 else null end)`),
		"path segment":                 address(`https://h/\(.p)hush/../x`),
		"dots":                         address(`https://h/hush/\(.p)/`),
	} {
		if err != nil && strings.Contains(err.Error(), "hus") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := expr(`.n + "hush"`); err == nil || !strings.Contains(err.Error(), `evaluating ".n + \"***\"": cannot add: number (1) and string ("***")`) {
		t.Errorf("got %v, want the message with *** in it", err)
	}
}

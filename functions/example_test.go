package functions_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
)

// WordCountOptions are what a user may write under word_count: in a pipeline file.
type WordCountOptions struct {
	Text functions.Expr `yaml:"text" doc:"the text to count in" required:"true"`
	Into functions.Path `yaml:"into" doc:"where the number goes" default:".words"`
}

type wordCount struct{ opts WordCountOptions }

func newWordCount(_ functions.Env, o WordCountOptions) (event.Func, error) {
	if o.Into.Root() {
		return nil, &functions.OptionError{Option: "into", Err: fmt.Errorf("the number would replace the whole value")}
	}
	return &wordCount{opts: o}, nil
}

// Process implements event.Func.
func (w *wordCount) Process(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
	text, missing, err := w.opts.Text.Text(ctx, ev)
	if err != nil {
		return nil, err
	}
	if missing {
		return nil, event.Rejectf(event.MissingField, "%s is missing", w.opts.Text)
	}
	words := len(strings.Fields(text))
	return []*event.Event{ev}, ev.Set(w.opts.Into.Path, strconv.AppendInt(nil, int64(words), 10))
}

// A function is a constructor over a struct of options; the program's main hands its Spec on.
func Example() {
	spec := functions.New("word_count", "counts words", newWordCount)
	set, err := functions.NewSet(functions.JQ(), spec)
	fmt.Println(set.Names(), err)

	// The pipeline loader does this from YAML.
	o := spec.NewOptions().(*WordCountOptions)
	fmt.Println(o.Text.UnmarshalText([]byte(`.page.text`)), o.Into.UnmarshalText([]byte(`.page.words`)))
	built, err := spec.Build(functions.Env{Name: "count"}, o)
	fmt.Println(built.Attempts, err)

	ev := event.New(event.Position{}, nil, []byte(`{"id": 9007199254740993, "page": {"text": "to be or not"}}`), nil, time.Time{})
	out, err := built.Func.Process(context.Background(), ev)
	fmt.Println(string(out[0].Value()), err)
	// Output:
	// [jq word_count] <nil>
	// <nil> <nil>
	// 5 <nil>
	// {"id": 9007199254740993, "page": {"text": "to be or not","words":4}} <nil>
}

package cli_test

import (
	"bytes"
	"context"
	"errors"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
)

type shoutOptions struct {
	Field functions.Path `yaml:"field" doc:"the text to make loud" required:"true"`
	Mark  string         `yaml:"mark" doc:"what stands behind it" default:"!" enum:"!|!!"`
}

// shout is a function of a user.
var shout = functions.New("shout", "makes a text loud", func(_ functions.Env, o shoutOptions) (event.Func, error) {
	return event.FuncOf(func(_ context.Context, ev *event.Event) ([]*event.Event, error) {
		raw, err := ev.Get(o.Field.Path)
		if err != nil {
			return nil, err
		}
		loud := append(bytes.TrimSuffix(bytes.ToUpper(raw), []byte(`"`)), o.Mark+`"`...)
		return []*event.Event{ev}, ev.Set(o.Field.Path, loud)
	}), nil
})

type trouble struct {
	Kind string `yaml:"kind" doc:"what goes wrong" required:"true" enum:"wait|stuck|fatal|panic|error"`
}

// fails is a function that does not do well.
var fails = functions.New("fails", "goes wrong", func(_ functions.Env, o trouble) (event.Func, error) {
	return event.FuncOf(func(ctx context.Context, ev *event.Event) ([]*event.Event, error) {
		switch o.Kind {
		case "wait":
			<-ctx.Done()
			return nil, ctx.Err()
		case "stuck":
			select {}
		case "fatal":
			return nil, event.Fatal(errors.New("the licence has run out"))
		case "panic":
			panic("oh no")
		}
		return nil, errors.New("it is Monday")
	}), nil
})

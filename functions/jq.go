package functions

import (
	"errors"

	"github.com/a0c75104/enricher/event"
)

// JQ describes the function jq. Its option is the program itself, as text.
func JQ() Spec {
	return New("jq", "edits the value with a jq program", func(env Env, p Program) (event.Func, error) {
		if p.IsZero() {
			return nil, errors.New("the program is missing")
		}
		if p.Rewrites() && env.Logger != nil {
			env.Logger.Info("a jq program writes the value anew instead of editing its bytes", "program", p.String())
		}
		return p.Func, nil
	})
}

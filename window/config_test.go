package window_test

import (
	"testing"
	"time"

	"github.com/a0c75104/enricher/window"
)

func TestValidate(t *testing.T) {
	const hint = " needs a timeout, for example 500ms; without one each event is a window"
	for _, c := range []struct {
		name string
		cfg  window.Config
		want string
	}{
		{name: "the zero config is a window of one event"},
		{name: "a window of one event needs no timeout", cfg: window.Config{Count: 1}},
		{name: "a timeout alone bounds a window", cfg: window.Config{Timeout: time.Second}},
		{name: "everything together", cfg: window.Config{Count: 100, Bytes: 1 << 20, Timeout: time.Second, Eager: true}},
		{name: "negative values are refused, all at once", cfg: window.Config{Count: -1, Bytes: -2, Timeout: -time.Second}, want: "count -1 is negative; bytes -2 is negative; timeout -1s is negative"},
		{name: "a count that may never come needs a timeout", cfg: window.Config{Count: 2}, want: "count 2" + hint},
		{name: "bytes that may never come need a timeout", cfg: window.Config{Bytes: 5}, want: "bytes 5" + hint},
		{name: "eager closes early, so there must be something to be earlier than", cfg: window.Config{Eager: true}, want: "eager" + hint},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if err := c.cfg.Validate(); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("Validate of %+v = %q, want %q", c.cfg, got, c.want)
			}
			w, err := window.New[int](c.cfg, true)
			if (err != nil) != (c.want != "") || (w == nil) != (err != nil) {
				t.Errorf("New(%+v) = %v, %v, want what Validate says: %q", c.cfg, w, err, c.want)
			}
		})
	}
}

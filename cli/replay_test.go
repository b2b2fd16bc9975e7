package cli_test

import (
	"strings"
	"testing"

	"github.com/a0c75104/enricher/cli"
)

// looked is what a replay knows of its topic.
type looked struct{ bare, further bool }

func (l looked) Bare() bool    { return l.bare }
func (l looked) Further() bool { return l.further }
func (looked) Group() string   { return "job-replay" }

func TestAReplayThatLookedAtNothingSaysWhetherOthersDid(t *testing.T) {
	for _, tt := range []struct {
		looked
		want string
	}{
		{looked{bare: true}, "the topic holds no error events"},
		{looked{further: true}, "other processes of group job-replay have looked at all of the topic meanwhile"},
		{looked{}, "looked at by runs with this filter before. --from-start begins anew"},
	} {
		if got := cli.NothingLookedAt(tt.looked); !strings.Contains(got, tt.want) {
			t.Errorf("%+v: it says %q, want %q", tt.looked, got, tt.want)
		}
	}
}

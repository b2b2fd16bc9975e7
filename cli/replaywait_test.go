package cli_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/cli"
	"github.com/a0c75104/enricher/cli/progress"
	"github.com/a0c75104/enricher/streammanager"
)

func TestAReplayThatMayReadNothingSaysWhatItWaitsFor(t *testing.T) {
	waits := errors.New("waiting for the group: a killed member is given up after session.timeout.ms (45s)")
	for name, tt := range map[string]struct {
		looked, left int64
		status       streammanager.Status
		want         string
	}{
		"nothing is assigned":        {status: streammanager.Status{Ready: waits}, want: waits.Error()},
		"it has read before":         {looked: 5, status: streammanager.Status{Ready: waits}, want: waits.Error()},
		"it reads":                   {looked: 5, left: 3, status: streammanager.Status{Unfinished: 1}, want: "4 of 8 error events"},
		"it reads, and a sink waits": {looked: 5, left: 3, status: streammanager.Status{Ready: errors.New("sink")}, want: "5 of 8 error events"},
		"all is read":                {looked: 8, want: "8 of 8 error events"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				bar := progress.New(&out, "error events", 10*time.Second)
				time.Sleep(10 * time.Second)
				cli.ShowReplay(bar, tt.looked, tt.left, tt.status)
				cli.ShowReplay(bar, tt.looked, tt.left, tt.status)
				if got := out.String(); got != tt.want+"\n" {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		})
	}
}

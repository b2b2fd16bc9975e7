package progress_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a0c75104/enricher/cli/progress"
)

func TestWhatIsNoTerminalGetsALineNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := progress.New(&out, "records", 10*time.Second)
		b.Show(1, 5000)
		time.Sleep(10 * time.Second)
		b.Show(1200, 5000)
		b.Show(1300, 5000)
		b.Clear()
		if got, want := out.String(), "1,200 of 5,000 records\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		out.Reset()
		b = progress.New(&out, "records", 0)
		time.Sleep(time.Hour)
		if b.Show(1, 2); out.Len() > 0 {
			t.Errorf("got %q, want nothing", out.String())
		}
	})
}

func TestCountsAreGroupedByThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := progress.Grouped(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

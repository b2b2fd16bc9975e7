// Package progress shows on a terminal how far a command has come: one bar that is drawn over and over. Elsewhere
// it writes a line now and then, or nothing. It starts no goroutine: whoever counts calls Show.
package progress

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"
)

const width = 40 // of a bar

// Bar shows how far a command has come.
type Bar struct {
	w        io.Writer
	what     string
	every    time.Duration
	terminal bool
	last     time.Time // of a line
}

// New makes a bar that counts what on w. Where w is no terminal it is a line at most every so often; 0: none.
func New(w io.Writer, what string, every time.Duration) *Bar {
	f, ok := w.(*os.File)
	return &Bar{w: w, what: what, every: every, terminal: ok && term.IsTerminal(int(f.Fd())), last: time.Now()}
}

// Show shows that done of total is done.
func (b *Bar) Show(done, total int64) {
	if b.terminal {
		b.say(line(done, total, b.what))
		return
	}
	b.say(Grouped(done) + " of " + Grouped(total) + " " + b.what)
}

// Wait shows, in place of how far the command has come, what it waits for.
func (b *Bar) Wait(why string) {
	if most := 2 * width; b.terminal && len(why) > most { // one that wraps would not be drawn over
		why = strings.ToValidUTF8(why[:most], "") + " …"
	}
	b.say(why)
}

func (b *Bar) say(text string) {
	switch {
	case b.terminal:
		fmt.Fprintf(b.w, "\r%s\x1b[K", text)
	case b.every > 0 && time.Since(b.last) >= b.every:
		b.last = time.Now()
		fmt.Fprintln(b.w, text)
	}
}

// Clear takes the bar away.
func (b *Bar) Clear() {
	if b.terminal {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}

func line(done, total int64, what string) string {
	full := int(min(done, total) * width / max(total, 1))
	return fmt.Sprintf("[%s%s] %s of %s %s", strings.Repeat("#", full), strings.Repeat(".", width-full), Grouped(done), Grouped(total), what)
}

// Grouped writes a count with commas between thousands.
func Grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

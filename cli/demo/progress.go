package demo

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

const barWidth = 40

// progress shows how far a run has come: a bar on a terminal, nothing elsewhere.
type progress struct {
	w        io.Writer
	total    int64
	terminal bool
}

func newProgress(w io.Writer, total int64) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, total: total, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

func (p *progress) show(done int64) {
	if p.terminal {
		fmt.Fprintf(p.w, "\r%s", bar(done, p.total))
	}
}

// clear takes the bar away.
func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func bar(done, total int64) string {
	full := int(done * barWidth / max(total, 1))
	return fmt.Sprintf("[%s%s] %s of %s events", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), grouped(done), grouped(total))
}

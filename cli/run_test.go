package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/cli"
)

func TestARunLeavesNoGoroutineBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	dir := t.TempDir()
	path := filepath.Join(dir, "p.yaml")
	text := "name: lines\nsource: {file: {path: '-'}}\nsink: {file: {path: '-'}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if got := cli.Run(t.Context(), []string{"run", path}, strings.NewReader("1\n2\n"), &out, &errs); got != 0 || out.String() != "1\n2\n" {
		t.Errorf("status %d, output %q, want 0 and both lines; it said:\n%s", got, out.String(), errs.String())
	}

	stopped, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	out.Reset()
	sink := writerFunc(func(b []byte) (int, error) { stop(); return len(b), nil })
	go func() { _, _ = io.WriteString(w, "1\n") }()
	if got := cli.Run(stopped, []string{"run", path}, r, sink, io.Discard); got != 0 {
		t.Errorf("stopped by its context: status %d, want 0", got)
	}
	_ = w.Close()
	goleak.VerifyNone(t, before)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

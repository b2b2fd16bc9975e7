package cli

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// logFlags say how a command logs.
type logFlags struct {
	format string
	level  string
}

func (f *logFlags) register(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.format, "log-format", "text", "how log lines are written to standard error: text or json")
	flags.StringVar(&f.level, "log-level", "", "least level that is logged: debug, info, warn or error (default info; replay: warn; demo, test, try: error)")
}

// logger returns the logger that the flags ask for; usual is the level where they name none.
func (f *logFlags) logger(w io.Writer, usual slog.Level) (*slog.Logger, error) {
	level := usual
	if f.level != "" {
		if err := level.UnmarshalText([]byte(f.level)); err != nil {
			return nil, fmt.Errorf("--log-level %q: write debug, info, warn or error", f.level)
		}
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: write text or json", f.format)
}

package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/a0c75104/enricher/cli/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var events int
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the page-content example end to end, with nothing outside this binary",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if events < 1 {
				return fmt.Errorf("--events %d: write 1 or more", events)
			}
			log, err := a.log.logger(a.stderr, slog.LevelError)
			if err != nil {
				return err
			}
			err = demo.Run(cmd.Context(), demo.Config{Events: events, Out: a.stdout, Status: a.stderr, Logger: log})
			switch {
			case err != nil && cmd.Context().Err() != nil:
				log.Warn("stopped before its end", "cause", context.Cause(cmd.Context()))
				return nil
			case err != nil:
				return failed(err)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&events, "events", 5000, "number of events")
	return cmd
}

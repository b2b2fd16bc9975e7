package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/a0c75104/enricher/cli/progress"
	"github.com/a0c75104/enricher/pipeline"
	"github.com/a0c75104/enricher/streammanager"
)

// replayFlags choose what is replayed, and how.
type replayFlags struct {
	load      loadFlags
	choice    pipeline.ReplayOptions
	dryRun    bool
	fromStart bool
}

func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Send the events behind a pipeline's error events through it again",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one pipeline file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, paths []string) error {
			log, err := a.log.logger(a.stderr, slog.LevelWarn)
			if err != nil {
				return err
			}
			if f.dryRun && f.fromStart {
				return errors.New("--from-start changes where the next run begins, and --dry-run changes nothing: take one of them out")
			}
			for _, name := range []string{"since", "until", "where"} {
				if flag := cmd.Flags().Lookup(name); flag.Changed && strings.TrimSpace(flag.Value.String()) == "" {
					return fmt.Errorf("--%s: %q says nothing, and would let everything through: take the flag out, or give it a value", name, flag.Value)
				}
			}
			loaded, err := a.load(a.stderr, paths, f.load, false)
			if err != nil {
				return err
			}
			r, err := loaded[0].Replay(f.choice)
			var problems pipeline.Problems
			switch {
			case errors.As(err, &problems):
				fmt.Fprintln(a.stderr, problems)
				return &exitError{status: exitInvalid}
			case err != nil:
				return err
			}
			return a.replay(cmd.Context(), log, loaded[0], r, &f)
		},
	}
	f.load.register(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.choice.Types, "type", nil, "only error events of these `TYPES`, such as not_found,timeout; may be repeated")
	flags.StringArrayVar(&f.choice.Functions, "function", nil, "only those that failed in these `FUNCTIONS`, by their name or place; may be repeated")
	flags.StringVar(&f.choice.Since, "since", "", "only those that failed at this `TIME` or later: RFC 3339, milliseconds since 1970, or an age such as -24h")
	flags.StringVar(&f.choice.Until, "until", "", "only those that failed before this `TIME`")
	flags.StringVar(&f.choice.Where, "where", "", "only events for which this `JQ` is true; it sees them as they were when they were first read")
	flags.StringArrayVar(&f.choice.Pipelines, "pipeline", nil, "error events of these `PIPELINES` in place of the file's own, as after it was renamed; may be repeated")
	flags.StringArrayVar(&f.choice.Topics, "topic", nil, "the `TOPICS` with the error events; needed where the file's topic is a template")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only count what a run would replay")
	flags.BoolVar(&f.fromStart, "from-start", false, "begin with the first error event again, whatever was replayed before")
	return cmd
}

// progressEvery is how often a line says how far the replay has come, where there is no terminal for a bar.
const progressEvery = 10 * time.Second

func (a *app) replay(ctx context.Context, log *slog.Logger, p *pipeline.Pipeline, r *pipeline.Replay, f *replayFlags) error {
	embedded := &pipeline.Embedded{}
	err := embedded.Prepare(p)
	if err == nil {
		defer boundMemory([]*pipeline.Pipeline{p}, log)()
		deps := pipeline.Deps{Logger: log, Embedded: embedded, Stdin: a.stdin, Stdout: a.stdout}
		switch {
		case f.dryRun:
			err = a.countReplay(ctx, p, r, deps)
		default:
			err = a.runReplay(ctx, p, r, deps, f.fromStart)
		}
	}
	if err := embedded.Close(); err != nil {
		log.Warn("closing the embedded broker", "err", err)
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// countReplay is a replay that sends nothing.
func (a *app) countReplay(ctx context.Context, p *pipeline.Pipeline, r *pipeline.Replay, deps pipeline.Deps) error {
	began := time.Now()
	if err := r.Count(ctx, deps); err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(a.stderr, "Stopped before all was counted. Nothing was sent or committed.")
			return nil
		}
		return err
	}
	t := r.Tally()
	rep := newReport(a.stdout, p, r)
	rep.row("would be sent", sum(t.Chosen), byName(t.Chosen))
	rep.leftOut(t)
	rep.end(began, "Nothing was sent or committed.")
	return nil
}

// runReplay sends what is chosen through the pipeline, until the end of the topic or of ctx.
func (a *app) runReplay(ctx context.Context, p *pipeline.Pipeline, r *pipeline.Replay, deps pipeline.Deps, fromStart bool) error {
	began := time.Now()
	if fromStart {
		if err := r.Forget(ctx, deps); err != nil {
			return err
		}
	}
	runs, err := r.Supervise(deps)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "Replaying error events of topic %s as group %s ...\n", strings.Join(r.Topics(), ", "), r.Group())
	err = a.watchReplay(ctx, r, runs)
	out := a.stdout
	if r.WritesStdout() {
		out = a.stderr
	}
	s, t := runs.Status(), r.Tally()
	rep := newReport(out, p, r)
	rep.row("events replayed", sum(t.Chosen), byName(t.Chosen))
	rep.row("sent", s.Emitted, "")
	rep.row("dropped", s.Dropped, "")
	rep.row("failed again", s.Errors, byName(s.ErrorsByType))
	rep.some("unfinished", s.Unfinished, "they are replayed by the next run")
	rep.some("given back", sum(t.Chosen)-s.Emitted-s.Dropped-s.Errors-s.Unfinished, "with their partitions: whoever has these replays them")
	rep.leftOut(t)
	switch {
	case err != nil:
		rep.end(began, "It failed. Run the same command again: it goes on behind what is finished.")
	case !r.Over() || s.Unfinished > 0:
		rep.end(began, "Stopped before the end. Run the same command again: it goes on behind what is finished.")
	case t.Looked == 0:
		rep.end(began, nothingLookedAt(r))
	default:
		rep.end(began, "All is read up to where the topic ended at the start. What failed again, or came meanwhile, is for the next run.")
	}
	return err
}

// nothingLookedAt says why a replay that came to its end has looked at nothing.
func nothingLookedAt(r interface {
	Bare() bool
	Further() bool
	Group() string
},
) string {
	switch {
	case r.Bare():
		return "Nothing was there to replay: the topic holds no error events up to where this run ends."
	case r.Further():
		return "Nothing was left to replay here: other processes of group " + r.Group() + " have looked at all of the topic meanwhile."
	}
	return "Nothing was left to replay: all of the topic was looked at by runs with this filter before. --from-start begins anew."
}

// watchReplay runs the replay to its end and shows how far it has come.
func (a *app) watchReplay(ctx context.Context, r *pipeline.Replay, runs *streammanager.Supervisor) error {
	bar := progress.New(a.stderr, "error events", progressEvery)
	defer bar.Clear()
	ended := make(chan error, 1)
	go func() { ended <- runs.Run(ctx) }()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	stopping := ctx.Done()
	for {
		select {
		case err := <-ended:
			return err
		case <-stopping:
			stopping = nil
			bar.Clear()
			fmt.Fprintln(a.stderr, "Stopping: what is in progress is finished and committed, as far as the time reaches; a second signal ends it at once.")
		case <-tick.C:
			showReplay(bar, r.Tally().Looked, r.Left(), runs.Status())
		}
	}
}

// showReplay shows how far a replay has come; where nothing is left that this process may read, why it goes on.
func showReplay(bar *progress.Bar, looked, left int64, s streammanager.Status) {
	if left == 0 && s.Ready != nil {
		bar.Wait(s.Ready.Error())
		return
	}
	bar.Show(max(looked-s.Unfinished, 0), looked+left)
}

// report is the summary of a replay.
type report struct{ w io.Writer }

func newReport(w io.Writer, p *pipeline.Pipeline, r *pipeline.Replay) *report {
	fmt.Fprintf(w, "Replay of %s from %s, group %s\n", p.Name(), strings.Join(r.Topics(), ", "), r.Group())
	return &report{w}
}

func (r *report) row(what string, n int64, more string) {
	if more != "" {
		more = "  " + more
	}
	fmt.Fprintf(r.w, "  %-24s %10s%s\n", what, progress.Grouped(n), more)
}

// some is row for what is worth a line only where there is any.
func (r *report) some(what string, n int64, more string) {
	if n > 0 {
		r.row(what, n, more)
	}
}

func (r *report) leftOut(t pipeline.Tally) {
	r.row("passed over by filter", sum(t.PassedOver), byName(t.PassedOver))
	r.row("cut, cannot be replayed", t.Cut, "")
	r.some("of other pipelines", sum(t.OfOthers), byName(t.OfOthers)+"; --pipeline replays them")
	r.some("no error events", t.NoErrors, "")
	r.some("--where failed", t.Unanswered, "passed over too")
}

func (r *report) end(began time.Time, how string) {
	fmt.Fprintf(r.w, "  %-24s %10s\n%s\n", "took", time.Since(began).Round(10*time.Millisecond), how)
}

func sum[K ~string](counts map[K]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// byName lists counts, the largest first.
func byName[K ~string](counts map[K]int64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b K) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = string(name) + " " + progress.Grouped(counts[name])
	}
	return strings.Join(parts, ", ")
}

// Package demo is the demonstration of enricher: the page-content pipeline over events made from real
// ones, on the broker inside the process and against an API with canned answers on loopback. It goes
// the way of `enricher run`: three pipeline files, one that loads the events, the one that is shown, and
// one that reads a result back. It needs nothing outside the binary and ends by itself.
package demo

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/a0c75104/enricher/cli/progress"
	"github.com/a0c75104/enricher/pipeline"
	"github.com/a0c75104/enricher/streammanager"
)

//go:embed *.yaml
var files embed.FS

// Config says how to run the demonstration.
type Config struct {
	Events int          // number of events, at least 1
	Out    io.Writer    // takes the table
	Status io.Writer    // takes the progress
	Logger *slog.Logger // takes what the pipelines log
}

// longest is how long the demonstration may take before it is called stuck.
const longest = 50 * time.Second

// Run runs the demonstration to its end.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Events < 1 {
		return fmt.Errorf("running the demo with %d events, which is less than 1", cfg.Events)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("it was not done after %v", longest))
	defer cancel()
	server, err := startAPI(ctx)
	if err != nil {
		return err
	}
	defer server.close()
	d := &demo{cfg: cfg, api: server.addr, embedded: &pipeline.Embedded{}}
	if err := d.prepare(); err != nil {
		return err
	}
	return errors.Join(d.run(ctx), d.embedded.Close())
}

type demo struct {
	cfg                     Config
	api                     string
	embedded                *pipeline.Embedded
	load, pageContent, show *pipeline.Pipeline
}

// prepare loads the three pipelines, and tells the broker of all their topics.
func (d *demo) prepare() error {
	for name, p := range map[string]**pipeline.Pipeline{"load.yaml": &d.load, "page-content.yaml": &d.pageContent, "show.yaml": &d.show} {
		var err error
		if *p, err = d.pipeline(name); err != nil {
			return err
		}
	}
	return d.embedded.Prepare(d.load, d.pageContent, d.show)
}

func (d *demo) run(ctx context.Context) error {
	fmt.Fprintf(d.cfg.Status, "Writing %s events to a broker inside this process ...\n", progress.Grouped(int64(d.cfg.Events)))
	if err := d.write(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.cfg.Status, "Fetching the text of their revisions from http://%s, at most 64 at a time ...\n", d.api)
	registry := prometheus.NewRegistry()
	status, took, err := d.enrich(ctx, registry)
	if err != nil {
		return err
	}
	sample, err := d.sample(ctx)
	if err != nil {
		return err
	}
	return writeReport(d.cfg.Out, status, took, registry, sample)
}

// pipeline loads one of the demo's files, by the loader of every other.
func (d *demo) pipeline(name string) (*pipeline.Pipeline, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", name, err)
	}
	dir, err := os.MkdirTemp("", "enricher-demo-")
	if err != nil {
		return nil, fmt.Errorf("unpacking %q: %w", name, err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a file left in the temporary directory does no harm
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, fmt.Errorf("unpacking %q: %w", name, err)
	}
	return pipeline.Load(path, pipeline.Options{Getenv: func(variable string) (string, bool) {
		return d.api, variable == "DEMO_API"
	}})
}

// write carries the events from a pipe into the source topic.
func (d *demo) write(ctx context.Context) error {
	r, w := io.Pipe()
	var writer sync.WaitGroup
	writer.Go(func() { _ = w.CloseWithError(writeEvents(w, d.cfg.Events)) })
	err := d.load.Run(ctx, pipeline.Deps{Logger: d.cfg.Logger, Embedded: d.embedded, Stdin: r})
	_ = r.Close() // ends the writer, where the pipeline ended before it
	writer.Wait()
	return explain(ctx, err, "writing the events")
}

// enrich runs the pipeline that is shown until every event is finished.
func (d *demo) enrich(ctx context.Context, registry *prometheus.Registry) (s streammanager.Status, took time.Duration, err error) {
	stream, closeAll, err := d.pageContent.Build(pipeline.Deps{Logger: d.cfg.Logger, Embedded: d.embedded, Metrics: registry})
	if err != nil {
		return s, 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- stream.Run(running) }()
	err = d.watch(stream, ended, func() { took = time.Since(began); stop() })
	s = stream.Status()
	return s, took, explain(ctx, errors.Join(err, closeAll()), fmt.Sprintf("enriching (%d of %d events read, %d emitted)", s.Read, d.cfg.Events, s.Emitted))
}

// watch shows the progress until the stream has ended; done is called once all events are finished.
func (d *demo) watch(stream *streammanager.Stream, ended <-chan error, done func()) error {
	bar := progress.New(d.cfg.Status, "events", 0)
	defer bar.Clear()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for finished := false; ; {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			s := stream.Status()
			n := s.Emitted + s.Dropped + s.Errors
			bar.Show(n, int64(d.cfg.Events))
			if n >= int64(d.cfg.Events) && !finished {
				finished = true
				done()
			}
		}
	}
}

// sample reads one enriched event back from the output topic.
func (d *demo) sample(ctx context.Context) ([]byte, error) {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	pick := &picker{found: stop}
	if err := d.show.Run(reading, pipeline.Deps{Logger: d.cfg.Logger, Embedded: d.embedded, Stdout: pick}); err != nil {
		return nil, fmt.Errorf("reading back an enriched event: %w", err)
	}
	if pick.line == nil {
		return nil, explain(ctx, errors.New("none was there"), "reading back an enriched event")
	}
	return pick.line, nil
}

// picker keeps the shortest enriched event of the first write that has one.
type picker struct {
	found func()
	line  []byte
}

func (p *picker) Write(b []byte) (int, error) {
	if p.line != nil {
		return len(b), nil
	}
	for line := range bytes.Lines(b) {
		if bytes.Contains(line, []byte(`"content_body"`)) && (p.line == nil || len(line) < len(p.line)) {
			p.line = bytes.Clone(line)
		}
	}
	if p.line != nil {
		p.found()
	}
	return len(b), nil
}

// explain names the act, and says why ctx ended where that is what stopped it.
func explain(ctx context.Context, err error, act string) error {
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", act, err)
}

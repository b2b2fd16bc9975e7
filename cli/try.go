package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/pipeline"
	"github.com/a0c75104/enricher/streammanager"
)

// tryFlags say what is tried.
type tryFlags struct {
	load    loadFlags
	event   string
	key     string
	topic   string
	headers []string
	send    bool
}

func (a *app) tryCommand() *cobra.Command {
	var f tryFlags
	cmd := &cobra.Command{
		Use:   "try FILE",
		Short: "Show what becomes of an event, step by step, without Kafka: its key, window, requests and results",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one pipeline file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, paths []string) error {
			log, err := a.log.logger(a.stderr, slog.LevelError)
			if err != nil {
				return err
			}
			loaded, err := a.load(a.stderr, paths, f.load, false)
			if err != nil {
				return err
			}
			records, err := f.records(loaded[0], a.stdin)
			if err != nil {
				return err
			}
			return a.try(cmd.Context(), log, loaded[0], records, f.send)
		},
	}
	f.load.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.event, "event", "-", "the `FILE` with the event, a JSON text; several are tried one after the other; - is standard input")
	flags.BoolVar(&f.send, "send", false, "send the requests, and show the answers and the result; else the first request of an event is only shown")
	flags.StringVar(&f.key, "key", "", "the `KEY` of the record (default none)")
	flags.StringVar(&f.topic, "topic", "", "the `TOPIC` of the record (default the first of the source)")
	flags.StringArrayVar(&f.headers, "header", nil, "a header of the record, `NAME=VALUE`; may be repeated")
	return cmd
}

// maxTried bounds the events that are read to be tried.
const maxTried = 64 << 20

// records makes the records that are tried.
func (f *tryFlags) records(p *pipeline.Pipeline, stdin io.Reader) ([]streammanager.Record, error) {
	in := stdin
	if f.event != "-" {
		file, err := os.Open(f.event)
		if err != nil {
			return nil, fmt.Errorf("--event: %w", err)
		}
		defer func() { _ = file.Close() }() // read only: nothing can be lost
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxTried+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--event: %w", err)
	case len(text) > maxTried:
		return nil, fmt.Errorf("--event: there are more than %d bytes", maxTried)
	}
	topic, offset := p.Reads()
	if f.topic != "" {
		topic = f.topic
	}
	var headers []event.Header
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return nil, fmt.Errorf("--header %q: write NAME=VALUE", h)
		}
		headers = append(headers, event.Header{Key: name, Value: []byte(value)})
	}
	var records []streammanager.Record
	for i, value := range values(text) {
		r := streammanager.Record{Topic: topic, Offset: offset + int64(i), Value: value, Headers: headers, Timestamp: time.Now()}
		if f.key != "" {
			r.Key = []byte(f.key)
		}
		records = append(records, r)
	}
	if len(records) == 0 {
		return nil, errors.New("--event: there is no event: give a JSON text")
	}
	return records, nil
}

// values parts a text into the JSON texts that follow each other in it. What is no JSON is one of its own, to the end, for
// the pipeline to judge.
func values(text []byte) [][]byte {
	var out [][]byte
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		from := d.InputOffset()
		var v json.RawMessage
		err := d.Decode(&v)
		switch {
		case err == nil:
			out = append(out, v)
		case errors.Is(err, io.EOF):
			return out
		default:
			return append(out, bytes.TrimSpace(text[from:]))
		}
	}
}

// try carries each record through the pipeline by itself and shows what becomes of it.
func (a *app) try(ctx context.Context, log *slog.Logger, p *pipeline.Pipeline, records []streammanager.Record, send bool) error {
	for i := range records {
		if ctx.Err() != nil {
			return failed(errors.New("stopped before all events were tried"))
		}
		t := &trial{w: a.stdout, p: p, rec: &records[i], send: send}
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := t.run(ctx, log); err != nil {
			return failed(err)
		}
	}
	return nil
}

// run carries the record through the pipeline.
func (t *trial) run(ctx context.Context, log *slog.Logger) error {
	of, cancel := context.WithCancel(ctx)
	defer cancel()
	t.stop = cancel
	t.line("event", "%s, offset %d, %d bytes", t.rec.Topic, t.rec.Offset, len(t.rec.Value))
	fates, err := t.p.Rehearse(of, pipeline.Deps{Logger: log, Around: t.around}, pipeline.Rehearsal{
		Events: []streammanager.Record{*t.rec}, Watch: t.watch,
	})
	if err != nil {
		return err
	}
	t.end(&fates[0], ctx.Err() != nil)
	return t.err
}

package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/a0c75104/enricher/cli/demo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What becomes of each event is settled by its number, so the counts are too.
func TestTheDemonstrationEndsWithEveryEventAccountedFor(t *testing.T) {
	var out, status, log bytes.Buffer
	began := time.Now()
	err := demo.Run(t.Context(), demo.Config{Events: 700, Out: &out, Status: &status, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatalf("%v; it logged:\n%s", err, log.String())
	}
	if took := time.Since(began); took > 40*time.Second {
		t.Errorf("it took %v", took)
	}
	table, sample, _ := strings.Cut(out.String(), "\nOne enriched event, read back from the output topic:\n")
	for _, row := range []string{
		`events in +700`, `emitted +683`, `dropped +7`, `error events +10`, `of type missing_key +1`, `of type not_found +7`, `of type unexpected_status +2`,
		`events per second +[\d,]+`, `batch latency p50 +[\d.]+m?s`, `batch latency p99 +[\d.]+m?s`,
	} {
		if !regexp.MustCompile(`(?m)^ *` + row + ` *$`).MatchString(table) {
			t.Errorf("the table has no row %q:\n%s", row, table)
		}
	}
	var event struct {
		Revision struct {
			ContentSlots struct {
				Main struct {
					Body string `json:"content_body"`
				} `json:"main"`
			} `json:"content_slots"`
		} `json:"revision"`
		Meta struct{ Stream string } `json:"meta"`
	}
	if err := json.Unmarshal([]byte(sample), &event); err != nil {
		t.Fatalf("the event shown: %v\n%s", err, sample)
	}
	if !strings.Contains(event.Revision.ContentSlots.Main.Body, "canned text") || event.Meta.Stream != "mediawiki.page_content_change.v1" {
		t.Errorf("the event shown is not enriched:\n%s", sample)
	}
	if strings.ContainsAny(status.String(), "\r\x1b") {
		t.Errorf("a bar was drawn where there is no terminal: %q", status.String())
	}
}

func TestTheDemonstrationStopsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	status := writerFunc(func(b []byte) (int, error) {
		if bytes.HasPrefix(b, []byte("Fetching")) {
			stop()
		}
		return len(b), nil
	})
	err := demo.Run(ctx, demo.Config{Events: 2000, Out: io.Discard, Status: status, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "enriching") {
		t.Errorf("Run: %v, want an error that says what was stopped", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

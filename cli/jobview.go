package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
)

// printer shows what a gateway answers.
type printer struct {
	w, errs io.Writer
	last    string // of progress
}

func (p *printer) raw(text json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return p.line("%s", b.String())
}

func (p *printer) line(format string, args ...any) error {
	_, err := fmt.Fprintf(p.w, format+"\n", args...)
	return written(err)
}

// progress says something once, for as long as it stays the same.
func (p *printer) progress(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != p.last {
		p.last = text
		fmt.Fprintln(p.errs, text)
	}
}

// table writes rows with aligned columns.
func (p *printer) table(rows [][]string) error {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return written(t.Flush())
}

func (p *printer) jobs(raw json.RawMessage) error {
	var list struct {
		Jobs []jobRow `json:"jobs"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("reading the list of jobs: %w", err)
	}
	rows := [][]string{{"NAME", "STATE", "STARTED", "FOR", "UNFINISHED", "ID"}}
	for _, r := range list.Jobs {
		rows = append(rows, []string{r.Name, r.State, moment(r.Start), span(r.Duration), fmt.Sprint(r.Unfinished), r.ID})
	}
	return p.table(rows)
}

func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

func span(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(time.Second).String()
}

// measures are the numbers of a job, in the order in which they are shown.
var measures = []struct{ name, label string }{
	{"eventsRead", "read"},
	{"eventsEmitted", "emitted"},
	{"eventsDropped", "dropped"},
	{"eventsFailed", "error events"},
	{"eventsUnfinished", "unfinished"},
	{"outputs", "outputs"},
	{"partitions", "partitions"},
	{"workers", "workers"},
	{"workersBusy", "workers busy"},
	{"numRestarts", "restarts"},
}

// status shows a job in words.
func (j *remoteJob) status(ctx context.Context) error {
	var names []string
	for _, m := range measures {
		names = append(names, m.name)
	}
	var values []struct{ ID, Value string }
	if err := j.c.Get(ctx, j.path("/metrics?get="+url.QueryEscape(strings.Join(names, ","))), &values); err != nil {
		return err
	}
	var failures struct {
		History struct {
			Entries []struct {
				Stack     string `json:"stacktrace"`
				Timestamp int64  `json:"timestamp"`
			} `json:"entries"`
		} `json:"exceptionHistory"`
	}
	if err := j.c.Get(ctx, j.path("/exceptions?maxExceptions=1"), &failures); err != nil {
		return err
	}
	rows := [][]string{{"job", j.Name}, {"id", j.ID}, {"state", j.State}, {"started", moment(j.Start) + ", for " + span(j.Duration)}}
	for _, m := range measures {
		for _, v := range values {
			if v.ID == m.name {
				rows = append(rows, []string{m.label, v.Value})
			}
		}
	}
	for _, e := range failures.History.Entries {
		rows = append(rows, []string{"last failure", moment(e.Timestamp) + " " + strings.TrimSpace(e.Stack)})
	}
	return j.out.table(rows)
}

// pressure is how a vertex spends its time.
type pressure struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Answer json.RawMessage `json:"backpressure"`
}

type subtask struct {
	Subtask int     `json:"subtask"`
	Level   string  `json:"backpressureLevel"`
	Ratio   float64 `json:"ratio"`
	Idle    float64 `json:"idleRatio"`
	Busy    float64 `json:"busyRatio"`
}

func (j *remoteJob) backpressure(ctx context.Context) error {
	var details struct {
		Vertices []*pressure `json:"vertices"`
	}
	if err := j.c.Get(ctx, j.path(""), &details); err != nil {
		return err
	}
	rows := [][]string{{"STAGE", "WORKER", "BUSY", "IDLE", "BACKPRESSURED", "LEVEL"}}
	for _, v := range details.Vertices {
		raw, err := j.c.Do(ctx, http.MethodGet, j.path("/vertices/"+v.ID+"/backpressure"), nil)
		if err != nil {
			return err
		}
		var of struct {
			Status   string    `json:"status"`
			Subtasks []subtask `json:"subtasks"`
		}
		if err := json.Unmarshal(raw, &of); err != nil {
			return fmt.Errorf("reading the backpressure of %s: %w", v.Name, err)
		}
		v.Answer = raw
		if len(of.Subtasks) == 0 {
			rows = append(rows, []string{v.Name, "", "", "", "", "not known yet"})
		}
		for _, s := range of.Subtasks {
			rows = append(rows, []string{v.Name, fmt.Sprint(s.Subtask), percent(s.Busy), percent(s.Idle), percent(s.Ratio), s.Level})
		}
	}
	if j.json {
		raw, err := json.Marshal(details)
		if err != nil {
			return fmt.Errorf("encoding the answers: %w", err)
		}
		return j.out.raw(raw)
	}
	return j.out.table(rows)
}

func percent(ratio float64) string { return fmt.Sprintf("%.0f%%", 100*ratio) }

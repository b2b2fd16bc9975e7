package cases

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// judge compares what came of the case with what should have.
func (r *run) judge() ([]Finding, error) {
	j := &judge{run: r}
	j.unanswered()
	if len(j.findings) > 0 {
		return j.findings, nil // what came of such an event says nothing
	}
	if r.failed != nil {
		j.find("", "the pipeline ended: %v", r.failed)
	}
	j.unfinished()
	j.outputs()
	j.errors()
	j.dropped()
	for i, c := range r.net.canned {
		if c.used == 0 && len(j.findings) == 0 { // else it may be for want of something else
			j.find(fmt.Sprintf("http[%d]", i), "nothing asked for this answer: %s", c.request)
		}
	}
	if len(j.findings) > 0 && len(r.net.asked) > 0 {
		last := &j.findings[len(j.findings)-1]
		last.Text += "\nrequests that were made:\n" + indented(j.requests())
	}
	return j.findings, nil
}

type judge struct {
	*run
	findings []Finding
}

func (j *judge) find(path, format string, args ...any) {
	j.findings = append(j.findings, Finding{Path: path, Text: fmt.Sprintf(format, args...)})
}

func indented(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// unanswered tells of the requests that nothing was canned for.
func (j *judge) unanswered() {
	said := map[string]bool{}
	for _, q := range j.net.asked {
		if q.by >= 0 || q.why == "" || said[q.String()+string(q.body)] {
			continue
		}
		said[q.String()+string(q.body)] = true
		text := fmt.Sprintf("a request %s: %s%s", q.why, q, q.of())
		if len(q.body) > 0 {
			text += "\n    with the body " + short(string(q.body))
		}
		path := "http"
		if near := j.net.nearest(q); near >= 0 {
			path = fmt.Sprintf("http[%d]", near)
			text += "\n    the nearest answer is that of " + j.net.canned[near].String()
			for _, d := range j.net.canned[near].differs(q) {
				text += "\n    " + d
			}
		} else {
			text += "\n    the case has no answers: write them under http"
		}
		j.findings = append(j.findings, Finding{Path: path, Text: text})
	}
}

// of says for what a request was made.
func (q *asked) of() string {
	if q.call == nil {
		return ""
	}
	events := make([]int, len(q.call.Events))
	for i, e := range q.call.Events {
		events[i] = e + 1
	}
	return fmt.Sprintf(" (%s, %s, attempt %d)", q.call.Function, named(events), q.try)
}

// named names events by their numbers.
func named(events []int) string {
	texts := make([]string, len(events))
	for i, e := range events {
		texts[i] = strconv.Itoa(e)
	}
	if len(texts) == 1 {
		return "event " + texts[0]
	}
	return "events " + strings.Join(texts, ", ")
}

// requests lists what was asked, with the time since the beginning.
func (j *judge) requests() string {
	const most = 30
	var out []string
	for n, q := range j.net.asked {
		if n == most {
			out = append(out, fmt.Sprintf("and %d more", len(j.net.asked)-most))
			break
		}
		got := "no answer"
		if q.by >= 0 {
			c := j.net.canned[q.by]
			got = fmt.Sprintf("http[%d] answers %d", q.by, c.status())
			if c.Error != "" {
				got = fmt.Sprintf("http[%d] fails with %q", q.by, c.Error)
			}
		}
		out = append(out, fmt.Sprintf("+%v %s%s: %s", q.after.Round(time.Millisecond), q, q.of(), got))
	}
	return strings.Join(out, "\n")
}

func (j *judge) unfinished() {
	for i, f := range j.fates {
		if f.Unfinished {
			why := "the pipeline ended before"
			if j.late {
				why = fmt.Sprintf("after %v of virtual time it is still tried", mostVirtual)
			}
			j.find(fmt.Sprintf("events[%d]", i), "event %d came to no end: %s", i+1, why)
		}
	}
}

// output is one output that there is.
type output struct {
	event int
	rec   *streammanager.Record
}

func (j *judge) outputs() {
	var got []output
	for i := range j.fates {
		for n := range j.fates[i].Outputs {
			got = append(got, output{i, &j.fates[i].Outputs[n]})
		}
	}
	want := j.c.Outputs
	for _, p := range align(len(want), len(got), func(w, g int) bool { return len(j.outputDiffers(w, got[g])) == 0 }) {
		switch w, g := p[0], p[1]; {
		case w < 0:
			j.find("outputs", "event %d has an output that is not expected: %s", got[g].event+1, valueShown(got[g].rec.Value))
		case g < 0:
			j.find(fmt.Sprintf("outputs[%d]", w), "there is no such output%s", j.instead(want[w].Event))
		default:
			if d := j.outputDiffers(w, got[g]); len(d) > 0 {
				j.find(fmt.Sprintf("outputs[%d]", w), "output %d, of event %d, differs:\n%s", w+1, got[g].event+1, indented(strings.Join(d, "\n")))
			}
		}
	}
}

// instead says what became of the events that have no output, where few have none.
func (j *judge) instead(of int) string {
	var out []string
	for i, f := range j.fates {
		if of > 0 && i != of-1 || len(f.Outputs) > 0 {
			continue
		}
		switch {
		case f.Failure != nil:
			out = append(out, fmt.Sprintf("event %d became an error event: %s", i+1, failureShown(f.Failure)))
		case f.Dropped:
			out = append(out, fmt.Sprintf("event %d was dropped%s", i+1, j.by(i)))
		}
	}
	if len(out) == 0 || len(out) > 3 {
		return ""
	}
	return "\n" + indented(strings.Join(out, "\n"))
}

func valueShown(v []byte) string {
	if v == nil {
		return "a tombstone"
	}
	return short(string(v))
}

func (j *judge) outputDiffers(w int, got output) []string {
	want, r := &j.c.Outputs[w], got.rec
	var out []string
	differ := func(what, got, want string) {
		if want != "" && got != want {
			out = append(out, contrast(what, got, want))
		}
	}
	switch v := j.wanted[w]; {
	case want.Tombstone && r.Value != nil:
		out = append(out, "value: got "+valueShown(r.Value)+", want a tombstone")
	case len(v) > 0 && r.Value == nil:
		out = append(out, "value: got a tombstone, want "+valueShown(v))
	case len(v) > 0:
		out = append(out, difference(bytes.TrimSuffix(v, []byte("\n")), r.Value)...)
	}
	differ("key", string(r.Key), string(want.Key))
	differ("topic", r.Topic, want.Topic)
	for _, name := range sortedKeys(want.Headers) {
		has := slices.ContainsFunc(r.Headers, func(h event.Header) bool { return h.Key == name && string(h.Value) == want.Headers[name] })
		if !has {
			out = append(out, fmt.Sprintf("header %s: got %s, want %q", name, headersShown(r, name), want.Headers[name]))
		}
	}
	if want.Timestamp != "" && !r.Timestamp.Equal(want.Timestamp.or(r.Timestamp)) {
		differ("timestamp", r.Timestamp.UTC().Format(time.RFC3339Nano), string(want.Timestamp))
	}
	if want.Event > 0 && want.Event != got.event+1 {
		out = append(out, fmt.Sprintf("it is of event %d, want one of event %d", got.event+1, want.Event))
	}
	return out
}

func headersShown(r *streammanager.Record, name string) string {
	var out []string
	for _, h := range r.Headers {
		if h.Key == name {
			out = append(out, quoted(string(h.Value)))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, " and ")
}

func failureShown(f *streammanager.Failure) string {
	text := fmt.Sprintf("%s in %s, %q", f.Type, f.Function, short(f.Message))
	if f.Attempts > 1 {
		text += fmt.Sprintf(", after %d attempts", f.Attempts)
	}
	return text
}

func (j *judge) errors() {
	var got []int
	for i, f := range j.fates {
		if f.Failure != nil {
			got = append(got, i)
		}
	}
	want := j.c.Errors
	for _, p := range align(len(want), len(got), func(w, g int) bool { return len(j.failureDiffers(&want[w], got[g])) == 0 }) {
		switch w, g := p[0], p[1]; {
		case w < 0:
			j.find("errors", "event %d has an error event that is not expected: %s", got[g]+1, failureShown(j.fates[got[g]].Failure))
		case g < 0:
			j.find(fmt.Sprintf("errors[%d]", w), "there is no such error event")
		default:
			if d := j.failureDiffers(&want[w], got[g]); len(d) > 0 {
				j.find(fmt.Sprintf("errors[%d]", w), "error event %d, of event %d, differs:\n%s\n    it says: %s", w+1, got[g]+1, indented(strings.Join(d, "\n")), failureShown(j.fates[got[g]].Failure))
			}
		}
	}
}

func (j *judge) failureDiffers(want *Failure, of int) []string {
	fate := &j.fates[of]
	f := fate.Failure
	var out []string
	differ := func(what, got, want string) {
		if want != "" && want != "0" && got != want {
			out = append(out, contrast(what, got, want))
		}
	}
	differ("type", string(f.Type), want.Type)
	differ("function", f.Function, want.Function)
	if !strings.Contains(f.Message, want.Message) {
		out = append(out, fmt.Sprintf("message: got %s, want one with %q in it", quoted(f.Message), want.Message))
	}
	differ("attempts", strconv.Itoa(f.Attempts), strconv.Itoa(want.Attempts))
	differ("status", strconv.Itoa(f.Status), strconv.Itoa(want.Status))
	differ("topic", fate.ErrorRecord.Topic, want.Topic)
	if want.Event > 0 && want.Event != of+1 {
		out = append(out, fmt.Sprintf("it is of event %d, want one of event %d", of+1, want.Event))
	}
	return out
}

// by says where an event was dropped.
func (j *judge) by(i int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if where := j.drops[i]; where != "" {
		return " by " + where
	}
	return ""
}

func (j *judge) dropped() {
	var got []int
	var said []string
	for i, f := range j.fates {
		if f.Dropped {
			got = append(got, i+1)
			said = append(said, fmt.Sprintf("event %d%s", i+1, j.by(i)))
		}
	}
	want := slices.Sorted(slices.Values(j.c.Dropped.Events))
	if want == nil && len(got) == j.c.Dropped.Count || want != nil && slices.Equal(got, want) {
		return
	}
	text := "none is dropped"
	if len(said) > 0 {
		text = "dropped: " + short(strings.Join(said, ", "))
	}
	wanted := strconv.Itoa(j.c.Dropped.Count)
	if want != nil {
		wanted = named(want)
	}
	j.find("dropped", "%s; want %s", text, wanted)
}

package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// exceptionsBody is the history of failures, and beside it, for older clients, its newest once more.
type exceptionsBody struct {
	History   exceptionHistory  `json:"exceptionHistory"`
	Root      *string           `json:"root-exception"`
	Timestamp *int64            `json:"timestamp"`
	All       []legacyException `json:"all-exceptions"`
	Truncated bool              `json:"truncated"`
}

type exceptionHistory struct {
	Entries   []exceptionEntry `json:"entries"`
	Truncated bool             `json:"truncated"`
}

type exceptionEntry struct {
	Name       string            `json:"exceptionName"`
	Stack      string            `json:"stacktrace"`
	Timestamp  int64             `json:"timestamp"`
	Labels     map[string]string `json:"failureLabels"`
	Task       string            `json:"taskName,omitempty"`
	Endpoint   string            `json:"endpoint,omitempty"`
	Location   string            `json:"location,omitempty"`
	Worker     string            `json:"taskManagerId,omitempty"`
	Concurrent []exceptionEntry  `json:"concurrentExceptions"`
}

type legacyException struct {
	Exception string `json:"exception"`
	Task      string `json:"task"`
	Location  string `json:"location"`
	Endpoint  string `json:"endpoint"`
	Timestamp int64  `json:"timestamp"`
	Worker    string `json:"taskManagerId"`
}

func (g *Gateway) jobExceptions(r *http.Request) (answer, error) {
	p, err := g.look(r)
	if err != nil {
		return answer{}, err
	}
	most, wanted := 20, map[string]string{}
	if text := r.URL.Query().Get("maxExceptions"); text != "" {
		if most, err = strconv.Atoi(text); err != nil || most < 0 {
			return answer{}, refuse(http.StatusBadRequest, "Bad request, could not parse parameters: Cannot resolve query parameter (maxExceptions) from value %q.", text)
		}
	}
	for _, pair := range strings.Split(r.URL.Query().Get("failureLabelFilter"), ",") {
		if key, value, ok := strings.Cut(pair, ":"); ok {
			wanted[key] = value
		}
	}
	body := exceptionsBody{History: exceptionHistory{Entries: []exceptionEntry{}, Truncated: p.Truncated}, All: []legacyException{}}
	for _, e := range p.Exceptions {
		if !labelled(e, wanted) {
			continue
		}
		if len(body.History.Entries) == most {
			body.History.Truncated = true
			break
		}
		entry := p.entry(e)
		body.History.Entries = append(body.History.Entries, entry)
		body.All = append(body.All, legacyException{entry.Stack, entry.Task, entry.Location, entry.Endpoint, entry.Timestamp, entry.Worker})
	}
	if entries := body.History.Entries; len(entries) > 0 {
		first := entries[0]
		body.Root, body.Timestamp, body.Truncated = &first.Stack, &first.Timestamp, body.History.Truncated
	}
	return answer{body: body}, nil
}

func labelled(e Exception, wanted map[string]string) bool {
	for key, value := range wanted {
		if e.Labels[key] != value {
			return false
		}
	}
	return true
}

func (p *seen) entry(e Exception) exceptionEntry {
	entry := exceptionEntry{
		Name: e.Name, Stack: e.Name + ": " + e.Text + "\n", Timestamp: millis(e.At), Labels: e.Labels, Worker: e.Worker, Concurrent: []exceptionEntry{},
	}
	if entry.Labels == nil {
		entry.Labels = map[string]string{}
	}
	if i := slices.IndexFunc(p.Workers, func(w Worker) bool { return w.Process.ID == e.Worker }); i >= 0 {
		entry.Endpoint = p.Workers[i].Process.Endpoint
		entry.Location = entry.Endpoint
		entry.Task = p.Name + " (" + strconv.Itoa(i+1) + "/" + strconv.Itoa(len(p.Workers)) + ")"
	}
	return entry
}

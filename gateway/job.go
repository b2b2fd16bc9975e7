package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/a0c75104/enricher/streammanager"
)

// Job is what a job can be asked, whoever carries it out: a Local is the part of it in this process. REST knows jobs by
// this alone.
type Job interface {
	// ID is 32 hex digits.
	ID() string
	// Look tells how the job does.
	Look(ctx context.Context) (Picture, error)
	// Cancel has the job end at once, without waiting for its end. It is no error where it was cancelled before; where it
	// has ended otherwise it is an EndedError.
	Cancel(ctx context.Context) error
	// Stop has the job end in order, and returns when it has.
	Stop(ctx context.Context, how Stop) (Stopped, error)
	// Rescale sets the workers of each process, 1 to streammanager.MostWorkers.
	Rescale(ctx context.Context, workers int) error
}

// Stop says how a job is to end.
type Stop struct {
	Drain bool // finishes all that was read, open windows too; else what is not dispatched is dropped
}

// Stopped is what was left when a job had ended.
type Stopped struct {
	Unfinished int64 // events that were read and will be read again
}

// Picture is how a job does.
type Picture struct {
	Name string
	History
	Restarts int
	Labels   Labels
	Workers  []Worker // each is one subtask of every vertex
	Settings []Setting
	Restart  string // what happens after a failure, in words
}

// Labels are what the vertices of a job are called.
type Labels struct{ Source, Process, Sink string }

// Setting is one of the settings of a job or a process, its secrets masked.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Worker is a process that works for a job.
type Worker struct {
	Process Process
	State   State // of the job there
	Status  streammanager.Status
}

// EndedError is that a job has ended, so that it cannot be asked any more.
type EndedError struct{ State State }

func (e *EndedError) Error() string {
	return fmt.Sprintf("the job has ended already: it is %s", e.State)
}

// idOf makes 32 hex digits of a name. They are the same in each worker and after each start.
func idOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// JobID is the id of the job of that name.
func JobID(name string) string { return idOf("job", name) }

// vertex is a stage of a job, as REST tells of it.
type vertex struct {
	id, name string
	stage    func(streammanager.Stages) streammanager.Stage
	ship     string // how records come to it
}

// vertices are source, process and sink, in this order.
func vertices(job string, l Labels) [3]vertex {
	return [3]vertex{
		{idOf("vertex", job, "source"), "Source: " + l.Source, func(s streammanager.Stages) streammanager.Stage { return s.Source }, ""},
		{idOf("vertex", job, "process"), l.Process, func(s streammanager.Stages) streammanager.Stage { return s.Process }, "HASH"},
		{idOf("vertex", job, "sink"), "Sink: " + l.Sink, func(s streammanager.Stages) streammanager.Stage { return s.Sink }, "FORWARD"},
	}
}

// processVertex is the place of the vertex whose upperBound is workers.
const processVertex = 1

// millis is a time as REST tells it: 0 for never.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// endMillis is the end of something, -1 where it goes on.
func endMillis(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}

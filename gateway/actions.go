package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/a0c75104/enricher/streammanager"
)

// cancel has a job end at once. The dashboard asks by GET yarn-cancel, since that passes YARN's proxy.
func (g *Gateway) cancel(r *http.Request) (answer, error) {
	mode := strings.ToLower(r.URL.Query().Get("mode"))
	switch {
	case mode == "stop":
		return g.legacyStop(r)
	case mode != "" && mode != "cancel":
		return answer{}, refuse(http.StatusBadRequest, "Bad request, could not parse parameters: Cannot resolve query parameter (mode) from value %q.", r.URL.Query().Get("mode"))
	}
	j, err := g.job(r)
	var unknown *unknownJobError
	switch {
	case errors.As(err, &unknown):
		return answer{}, refuse(http.StatusNotFound, "Job could not be found.")
	case err != nil:
		return answer{}, err
	}
	err = j.Cancel(r.Context())
	var ended *EndedError
	switch {
	case errors.As(err, &ended):
		return answer{}, refuse(http.StatusConflict, "Job cancellation failed because the job has already reached another terminal state (%s).", ended.State)
	case errors.Is(err, context.DeadlineExceeded):
		return answer{}, refuse(http.StatusRequestTimeout, "Job cancellation timed out.")
	case err != nil:
		return answer{}, refuse(http.StatusInternalServerError, "Job cancellation failed: %v", err)
	}
	return answer{http.StatusAccepted, none{}}, nil
}

func (g *Gateway) legacyStop(*http.Request) (answer, error) {
	return answer{}, refuse(http.StatusPermanentRedirect, "The termination mode \"stop\" has been removed. For an ungraceful shutdown, please use \"cancel\" instead. For a graceful shutdown, please use POST /jobs/:jobid/stop instead.")
}

// The kinds of operations. A stop is asked about where savepoints are.
const (
	kindSavepoint  = "savepoint"
	kindCheckpoint = "checkpoint"
	kindRescaling  = "rescaling"
	kindDisposal   = "disposal"
)

type triggered struct {
	ID string `json:"request-id"`
}

type operationBody struct {
	Status    progressID `json:"status"`
	Operation any        `json:"operation"`
}

type failedBody struct {
	Cause *failureCause `json:"failure-cause"`
}

// triggerID reads the id that a client may give, for its trigger to be carried out once however often it is sent.
func triggerID(id string) (string, error) {
	if id == "" {
		return "", nil
	}
	lower := strings.ToLower(id)
	if len(lower) != 32 || strings.Trim(lower, "0123456789abcdef") != "" {
		return "", refuse(http.StatusBadRequest, "triggerId: %q is not 32 hexadecimal digits.", id)
	}
	return lower, nil
}

// poll answers how far an operation is. unknown is what to say where there is none.
func (g *Gateway) poll(key OperationKey, unknown string) (answer, error) {
	p, err := g.operations.Poll(key)
	switch {
	case errors.Is(err, ErrUnknownOperation):
		return answer{}, refuse(http.StatusNotFound, "%s", unknown)
	case err != nil:
		return answer{}, err
	case !p.Done:
		return answer{body: operationBody{Status: inProgress}}, nil
	case p.Err != nil:
		return answer{body: operationBody{completed, failedBody{failureOf(classOf(p.Err), p.Err.Error())}}}, nil
	}
	return answer{body: operationBody{completed, p.Result}}, nil
}

type stopRequest struct {
	Directory string `json:"targetDirectory"`
	Drain     bool   `json:"drain"`
	Format    string `json:"formatType"`
	Trigger   string `json:"triggerId"`
	// Savepoint is beyond Flink's: false stops without one.
	Savepoint *bool `json:"savepoint"`
}

// noPlace refuses what needs a place for savepoints.
func noPlace(property string) error {
	return refuse(http.StatusBadRequest,
		"No savepoint can be taken: this process was given no place for them. Property [%s] does not help: a directory must be one that the process was given. To stop without a savepoint, what is finished being committed, use enricher job stop, or POST /jobs/:jobid/stop with {\"savepoint\": false}.", property)
}

type stoppedBody struct {
	Unfinished int64 `json:"unfinished-events"` // that were read and will be read again
}

// stop ends a job in order. As with Flink the trigger is taken whether or not there is such a job; the poll tells.
func (g *Gateway) stop(r *http.Request) (answer, error) {
	var req stopRequest
	if err := decode(r, &req, "StopWithSavepointRequestBody"); err != nil {
		return answer{}, err
	}
	key, err := g.jobKey(r, kindSavepoint, req.Trigger)
	if err != nil {
		return answer{}, err
	}
	if req.Savepoint == nil || *req.Savepoint {
		return answer{}, noPlace("targetDirectory")
	}
	return g.trigger(r, http.StatusAccepted, key, func(ctx context.Context, j Job) (any, error) {
		left, err := j.Stop(ctx, Stop{Drain: req.Drain})
		return stoppedBody(left), err
	})
}

func (g *Gateway) jobKey(r *http.Request, kind, trigger string) (OperationKey, error) {
	job, err := pathID(r, "job", "jobid")
	if err != nil {
		return OperationKey{}, err
	}
	id, err := triggerID(trigger)
	return OperationKey{Kind: kind, Job: job, ID: id}, err
}

// trigger begins an operation on a job. That there is no such job is the operation's failure.
func (g *Gateway) trigger(r *http.Request, status int, key OperationKey, do func(context.Context, Job) (any, error)) (answer, error) {
	j, missing := g.job(r)
	id, err := g.operations.Trigger(r.Context(), key, func(ctx context.Context) (any, error) {
		if missing != nil {
			return nil, missing
		}
		return do(ctx, j)
	})
	if err != nil {
		return answer{}, err
	}
	return answer{status, triggered{id}}, nil
}

func (g *Gateway) stopped(r *http.Request) (answer, error) {
	return g.pollOfJob(r, kindSavepoint, "There is no savepoint operation with triggerId=%s for job %s.")
}

func (g *Gateway) pollOfJob(r *http.Request, kind, unknown string) (answer, error) {
	job, err := pathID(r, "job", "jobid")
	if err != nil {
		return answer{}, err
	}
	id, err := pathID(r, "operation", "triggerid")
	if err != nil {
		return answer{}, err
	}
	return g.poll(OperationKey{Kind: kind, Job: job, ID: id}, fmt.Sprintf(unknown, id, job))
}

// savepoint is refused as long as savepoints have no place.
func (g *Gateway) savepoint(r *http.Request) (answer, error) {
	var req struct {
		Directory string `json:"target-directory"`
		Cancel    bool   `json:"cancel-job"`
		Trigger   string `json:"triggerId"`
	}
	if err := decode(r, &req, "SavepointTriggerRequestBody"); err != nil {
		return answer{}, err
	}
	if _, err := g.jobKey(r, kindSavepoint, req.Trigger); err != nil {
		return answer{}, err
	}
	return answer{}, noPlace("target-directory")
}

// checkpoint is refused: each worker commits its positions by itself, every commit_interval.
func (g *Gateway) checkpoint(r *http.Request) (answer, error) {
	if _, err := g.look(r); err != nil {
		return answer{}, err
	}
	return answer{}, refuse(http.StatusBadRequest, "There are no checkpoints: what is finished is committed to the source every commit_interval.")
}

func (g *Gateway) checkpointed(r *http.Request) (answer, error) {
	return g.pollOfJob(r, kindCheckpoint, "There is no checkpoint operation with triggerId=%s for job %s.")
}

func (g *Gateway) dispose(r *http.Request) (answer, error) {
	var req struct {
		Path string `json:"savepoint-path"`
	}
	if err := decode(r, &req, "SavepointDisposalRequest"); err != nil {
		return answer{}, err
	}
	if req.Path == "" {
		return answer{}, refuse(http.StatusBadRequest, "Field savepoint-path must not be omitted or be null.")
	}
	return answer{}, refuse(http.StatusBadRequest, "This process was given no place for savepoints, so that none is known to it.")
}

func (g *Gateway) disposed(r *http.Request) (answer, error) {
	id, err := pathID(r, "operation", "triggerid")
	if err != nil {
		return answer{}, err
	}
	return g.poll(OperationKey{Kind: kindDisposal, ID: id}, "Operation not found under key: "+id)
}

// submit is refused: the pipelines of a process are those that it was started with.
func (g *Gateway) submit(*http.Request) (answer, error) {
	return answer{}, refuse(http.StatusForbidden, "This process takes no pipelines by request: run the pipeline file with enricher run.")
}

// heartbeat takes the sign of life of a client that would take its job with it. No job here depends on a client.
func (g *Gateway) heartbeat(r *http.Request) (answer, error) {
	if _, err := g.job(r); err != nil {
		return answer{}, err
	}
	return answer{http.StatusAccepted, none{}}, nil
}

// rescale sets the workers of each process, as Flink 1.7 set the parallelism.
func (g *Gateway) rescale(r *http.Request) (answer, error) {
	text := r.URL.Query().Get("parallelism")
	n, err := strconv.Atoi(text)
	if err != nil {
		return answer{}, refuse(http.StatusBadRequest, "Bad request, could not parse parameters: Cannot resolve query parameter (parallelism) from value %q.", text)
	}
	key, err := g.jobKey(r, kindRescaling, "")
	if err != nil {
		return answer{}, err
	}
	return g.trigger(r, http.StatusOK, key, func(ctx context.Context, j Job) (any, error) {
		if n > streammanager.MostWorkers {
			return nil, fmt.Errorf("the job cannot be rescaled: its maximum parallelism %d is smaller than the new parallelism %d", streammanager.MostWorkers, n)
		}
		return none{}, j.Rescale(ctx, n)
	})
}

func (g *Gateway) rescaled(r *http.Request) (answer, error) {
	return g.pollOfJob(r, kindRescaling, "Operation not found under key: %s of job %s")
}

type bounds struct {
	Parallelism boundsBody `json:"parallelism"`
}

type boundsBody struct {
	Lower int `json:"lowerBound"`
	Upper int `json:"upperBound"`
}

// requirementsOf says what a job is to have: one subtask of each vertex per process, and workers as the upper bound of
// the vertex that has them.
func (p *seen) requirements() map[string]bounds {
	processes := max(1, len(p.Workers))
	workers := 1
	for _, w := range p.Workers {
		workers = max(workers, w.Status.Workers)
	}
	of := map[string]bounds{}
	for i, v := range vertices(p.id, p.Labels) {
		of[v.id] = bounds{boundsBody{1, processes}}
		if i == processVertex {
			of[v.id] = bounds{boundsBody{1, workers}}
		}
	}
	return of
}

func (g *Gateway) requirements(r *http.Request) (answer, error) {
	p, err := g.look(r)
	if err != nil {
		return answer{}, err
	}
	return answer{body: p.requirements()}, nil
}

func (g *Gateway) require(r *http.Request) (answer, error) {
	p, err := g.look(r)
	if err != nil {
		return answer{}, err
	}
	var req map[string]bounds
	if err := decode(r, &req, "JobResourceRequirementsBody"); err != nil {
		return answer{}, err
	}
	if len(req) == 0 {
		return answer{}, refuse(http.StatusBadRequest, "Request body does not specify resource requirements.")
	}
	workers, faults := p.required(req)
	if len(faults) > 0 {
		slices.Sort(faults)
		return answer{}, &RequestError{http.StatusBadRequest, faults}
	}
	j, err := g.job(r)
	if err != nil {
		return answer{}, err
	}
	var ended *EndedError
	if err := j.Rescale(r.Context(), workers); errors.As(err, &ended) {
		return answer{}, refuse(http.StatusConflict, "The requirements were not changed: %v.", ended)
	} else if err != nil {
		return answer{}, err
	}
	return answer{body: none{}}, nil
}

// required finds the workers that are asked for, or all that is wrong with the request.
func (p *seen) required(req map[string]bounds) (workers int, faults []string) {
	have := p.requirements()
	for i, v := range vertices(p.id, p.Labels) {
		b, ok := req[v.id]
		if !ok {
			faults = append(faults, fmt.Sprintf("The request is incomplete, missing job vertex %s (%s).", v.id, v.name))
			continue
		}
		if b.Parallelism.Lower == -1 {
			b.Parallelism.Lower = 1
		}
		if b.Parallelism.Upper == -1 {
			b.Parallelism.Upper = have[v.id].Parallelism.Upper
		}
		lower, upper := b.Parallelism.Lower, b.Parallelism.Upper
		switch {
		case lower < 1 || lower > upper || upper > streammanager.MostWorkers:
			faults = append(faults, fmt.Sprintf("Bounds %d to %d of job vertex %s (%s) are not 1 <= lower <= upper <= %d.", lower, upper, v.id, v.name, streammanager.MostWorkers))
		case i == processVertex:
			workers = upper
		case upper != have[v.id].Parallelism.Upper:
			faults = append(faults, fmt.Sprintf("The parallelism of job vertex %s (%s) is the number of processes, %d, which a request cannot change: only the upper bound of %s means workers.",
				v.id, v.name, have[v.id].Parallelism.Upper, vertices(p.id, p.Labels)[processVertex].name))
		}
	}
	for id := range req {
		if _, ok := have[id]; !ok {
			faults = append(faults, fmt.Sprintf("Job vertex %.40q was not found in the job.", id))
		}
	}
	return workers, faults
}

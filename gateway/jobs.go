package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/a0c75104/enricher/streammanager"
)

func (p *seen) duration() int64 {
	end := p.Ended()
	if end.IsZero() {
		end = p.now
	}
	return max(0, millis(end)-millis(p.Began()))
}

// times has every state; 0 says never.
func (p *seen) times() map[string]int64 {
	times := map[string]int64{}
	for _, s := range States() {
		times[string(s)] = millis(p.Since[s])
	}
	return times
}

// taskStates are what a subtask may do. Cancelling is spelt in another way there.
var taskStates = []string{"CREATED", "SCHEDULED", "DEPLOYING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED", "RECONCILING", "INITIALIZING"}

// taskState is what the subtasks of a worker do while its job there is in a state.
func taskState(s State) string {
	switch s {
	case Running:
		return "RUNNING"
	case Failing, Failed:
		return "FAILED"
	case Cancelling:
		return "CANCELING"
	case Canceled, Suspended:
		return "CANCELED"
	case Finished:
		return "FINISHED"
	}
	return "CREATED"
}

// vertexOrder is in which order the state of one subtask is that of the vertex.
var vertexOrder = []string{"FAILED", "CANCELING", "CANCELED", "INITIALIZING", "RUNNING"}

// taskCounts counts the subtasks of a vertex by state, and says what the vertex does.
func (p *seen) taskCounts() (counts map[string]int, vertex string) {
	counts = map[string]int{}
	for _, s := range taskStates {
		counts[s] = 0
	}
	for _, w := range p.Workers {
		counts[taskState(w.State)]++
	}
	for _, s := range vertexOrder {
		if counts[s] > 0 {
			return counts, s
		}
	}
	if len(p.Workers) > 0 && counts["FINISHED"] == len(p.Workers) {
		return counts, "FINISHED"
	}
	return counts, "CREATED"
}

type jobID struct {
	ID     string `json:"id"`
	Status State  `json:"status"`
}

func (g *Gateway) jobIDs(r *http.Request) (answer, error) {
	all, err := g.pictures(r.Context())
	list := []jobID{}
	for _, p := range all {
		list = append(list, jobID{p.id, p.State})
	}
	return answer{body: map[string]any{"jobs": list}}, err
}

type jobOverview struct {
	ID         string         `json:"jid"`
	Name       string         `json:"name"`
	Start      int64          `json:"start-time"`
	End        int64          `json:"end-time"`
	Duration   int64          `json:"duration"`
	State      State          `json:"state"`
	Modified   int64          `json:"last-modification"`
	Tasks      map[string]int `json:"tasks"`
	Pending    int            `json:"pending-operators"`
	Type       string         `json:"jobType"`
	Scheduler  string         `json:"schedulerType"`
	Unfinished int64          `json:"unfinished-events"` // beyond what Flink tells
}

func (p *seen) overview() jobOverview {
	counts, _ := p.taskCounts()
	o := jobOverview{
		ID: p.id, Name: p.Name, Start: millis(p.Began()), End: endMillis(p.Ended()), Duration: p.duration(), State: p.State,
		Modified: millis(p.Changed), Tasks: map[string]int{}, Type: "STREAMING", Scheduler: "Default",
	}
	stages := len(vertices(p.id, p.Labels))
	for s, n := range counts {
		o.Tasks[strings.ToLower(s)] = n * stages
	}
	o.Tasks["total"] = len(p.Workers) * stages
	for _, w := range p.Workers {
		o.Unfinished += w.Status.Unfinished
	}
	return o
}

func (g *Gateway) jobsOverview(r *http.Request) (answer, error) {
	all, err := g.pictures(r.Context())
	list := []jobOverview{}
	for _, p := range all {
		list = append(list, p.overview())
	}
	return answer{body: map[string]any{"jobs": list}}, err
}

type jobDetails struct {
	ID             string           `json:"jid"`
	Name           string           `json:"name"`
	Stoppable      bool             `json:"isStoppable"` // by a call that Flink has taken out
	State          State            `json:"state"`
	Type           string           `json:"job-type"`
	Start          int64            `json:"start-time"`
	End            int64            `json:"end-time"`
	Duration       int64            `json:"duration"`
	MaxParallelism int              `json:"maxParallelism"`
	Now            int64            `json:"now"`
	Times          map[string]int64 `json:"timestamps"`
	Vertices       []vertexBody     `json:"vertices"`
	StatusCounts   map[string]int   `json:"status-counts"`
	Plan           planBody         `json:"plan"`
	Pending        int              `json:"pending-operators"`
	Application    string           `json:"application-id"`
	Scheduler      string           `json:"schedulerType"`
}

// vertexBody is a vertex among those of its job.
type vertexBody struct {
	ID             string         `json:"id"`
	Slot           string         `json:"slotSharingGroupId"`
	Name           string         `json:"name"`
	MaxParallelism int            `json:"maxParallelism"`
	Parallelism    int            `json:"parallelism"`
	Status         string         `json:"status"`
	Start          int64          `json:"start-time"`
	End            int64          `json:"end-time"`
	Duration       int64          `json:"duration"`
	Tasks          map[string]int `json:"tasks"`
	Metrics        ioMetrics      `json:"metrics"`
}

// ioMetrics is what went through a vertex or subtask since the start.
type ioMetrics struct {
	ReadBytes            int64   `json:"read-bytes"`
	ReadBytesComplete    bool    `json:"read-bytes-complete"`
	WriteBytes           int64   `json:"write-bytes"`
	WriteBytesComplete   bool    `json:"write-bytes-complete"`
	ReadRecords          int64   `json:"read-records"`
	ReadRecordsComplete  bool    `json:"read-records-complete"`
	WriteRecords         int64   `json:"write-records"`
	WriteRecordsComplete bool    `json:"write-records-complete"`
	Backpressured        int64   `json:"accumulated-backpressured-time"`
	Idle                 int64   `json:"accumulated-idle-time"`
	Busy                 float64 `json:"accumulated-busy-time"`
}

func ioOf(flows ...streammanager.Flow) ioMetrics {
	m := ioMetrics{ReadBytesComplete: true, WriteBytesComplete: true, ReadRecordsComplete: true, WriteRecordsComplete: true}
	for _, f := range flows {
		m.ReadBytes += f.BytesIn
		m.WriteBytes += f.BytesOut
		m.ReadRecords += f.RecordsIn
		m.WriteRecords += f.RecordsOut
		m.Backpressured += f.Backpressured.Milliseconds()
		m.Idle += f.Idle.Milliseconds()
		m.Busy += float64(f.Busy.Milliseconds())
	}
	return m
}

// flows returns the totals of one vertex, a worker each.
func (p *seen) flows(v vertex) []streammanager.Flow {
	var all []streammanager.Flow
	for _, w := range p.Workers {
		all = append(all, v.stage(w.Status.Stages).Total)
	}
	return all
}

func (g *Gateway) jobDetails(r *http.Request) (answer, error) {
	p, err := g.look(r)
	if err != nil {
		return answer{}, err
	}
	body := jobDetails{
		ID: p.id, Name: p.Name, State: p.State, Type: "STREAMING", Start: millis(p.Began()), End: endMillis(p.Ended()), Duration: p.duration(),
		MaxParallelism: streammanager.MostWorkers, Now: millis(p.now), Times: p.times(), StatusCounts: map[string]int{}, Plan: p.plan(),
		Application: p.id, Scheduler: "Default",
	}
	for _, s := range taskStates {
		body.StatusCounts[s] = 0
	}
	for _, v := range vertices(p.id, p.Labels) {
		counts, state := p.taskCounts()
		body.StatusCounts[state]++
		body.Vertices = append(body.Vertices, vertexBody{
			ID: v.id, Slot: idOf("slot", p.id), Name: v.name, MaxParallelism: streammanager.MostWorkers, Parallelism: len(p.Workers), Status: state,
			Start: millis(p.Began()), End: endMillis(p.Ended()), Duration: p.duration(), Tasks: counts, Metrics: ioOf(p.flows(v)...),
		})
	}
	return answer{body: body}, nil
}

type planBody struct {
	ID    string     `json:"jid"`
	Name  string     `json:"name"`
	Type  string     `json:"type"`
	Nodes []planNode `json:"nodes"`
}

type planNode struct {
	ID          string         `json:"id"`
	Parallelism int            `json:"parallelism"`
	Operator    string         `json:"operator"`
	Strategy    string         `json:"operator_strategy"`
	Description string         `json:"description"`
	Inputs      []planInput    `json:"inputs,omitempty"`
	Optimizer   map[string]any `json:"optimizer_properties"`
}

type planInput struct {
	Num      int    `json:"num"`
	ID       string `json:"id"`
	Ship     string `json:"ship_strategy"`
	Exchange string `json:"exchange"`
}

func (p *seen) plan() planBody {
	plan := planBody{ID: p.id, Name: p.Name, Type: "STREAMING"}
	before := ""
	for _, v := range vertices(p.id, p.Labels) {
		n := planNode{ID: v.id, Parallelism: len(p.Workers), Description: v.name, Optimizer: map[string]any{}}
		if before != "" {
			n.Inputs = []planInput{{ID: before, Ship: v.ship, Exchange: "pipelined_bounded"}}
		}
		plan.Nodes, before = append(plan.Nodes, n), v.id
	}
	return plan
}

func (g *Gateway) jobPlan(r *http.Request) (answer, error) {
	p, err := g.look(r)
	if err != nil {
		return answer{}, err
	}
	return answer{body: map[string]any{"plan": p.plan()}}, nil
}

func (g *Gateway) jobStatus(r *http.Request) (answer, error) {
	p, err := g.look(r)
	if err != nil {
		return answer{}, err
	}
	return answer{body: map[string]any{"status": p.State}}, nil
}

type resultBody struct {
	Status progressID `json:"status"`
	Result *jobResult `json:"job-execution-result,omitempty"`
}

type progressID struct {
	ID string `json:"id"`
}

// The words for how far something is.
var (
	inProgress = progressID{"IN_PROGRESS"}
	completed  = progressID{"COMPLETED"}
)

type jobResult struct {
	ID           string         `json:"id"`
	Status       string         `json:"application-status"`
	Accumulators map[string]any `json:"accumulator-results"`
	Runtime      int64          `json:"net-runtime"`
	Failure      *failureCause  `json:"failure-cause,omitempty"`
}

// results say what a final state came to.
var results = map[State]string{Finished: "SUCCEEDED", Canceled: "CANCELED", Failed: "FAILED"}

func (g *Gateway) jobResult(r *http.Request) (answer, error) {
	p, err := g.look(r)
	if err != nil {
		return answer{}, err
	}
	status := results[p.State]
	if status == "" {
		return answer{body: resultBody{Status: inProgress}}, nil
	}
	result := &jobResult{ID: p.id, Status: status, Accumulators: map[string]any{}, Runtime: p.duration()}
	if f := p.Failure(); f != nil {
		result.Failure = failureOf(classJobExecution, f.Text)
	}
	return answer{body: resultBody{completed, result}}, nil
}

type jobConfigBody struct {
	ID     string          `json:"jid"`
	Name   string          `json:"name"`
	Config executionConfig `json:"execution-config"`
}

type executionConfig struct {
	Restart     string            `json:"restart-strategy"`
	Parallelism int               `json:"job-parallelism"`
	Reuse       bool              `json:"object-reuse-mode"`
	User        map[string]string `json:"user-config"`
}

func (g *Gateway) jobConfig(r *http.Request) (answer, error) {
	p, err := g.look(r)
	if err != nil {
		return answer{}, err
	}
	user := map[string]string{}
	for _, s := range p.Settings {
		user[s.Key] = masked(s.Key, s.Value)
	}
	return answer{body: jobConfigBody{p.id, p.Name, executionConfig{p.Restart, len(p.Workers), false, user}}}, nil
}

func (g *Gateway) jobAccumulators(r *http.Request) (answer, error) {
	if _, err := g.look(r); err != nil {
		return answer{}, err
	}
	return answer{body: map[string]any{"job-accumulators": []any{}, "user-task-accumulators": []any{}, "serialized-user-task-accumulators": map[string]any{}}}, nil
}

// noCheckpoints is what Flink answers for a job without: positions are committed to the source, each for itself.
func (g *Gateway) noCheckpoints(r *http.Request) (answer, error) {
	if _, err := g.look(r); err != nil {
		return answer{}, err
	}
	return answer{}, refuse(http.StatusNotFound, "Checkpointing has not been enabled.")
}

// look returns the job that the path names.
func (g *Gateway) look(r *http.Request) (*seen, error) {
	j, err := g.job(r)
	if err != nil {
		return nil, err
	}
	p, err := j.Look(r.Context())
	if err != nil {
		return nil, fmt.Errorf("asking job %s how it does: %w", j.ID(), err)
	}
	return &seen{p, j.ID(), time.Now()}, nil
}

// job returns the job that the path names, to be asked.
func (g *Gateway) job(r *http.Request) (Job, error) {
	id, err := pathID(r, "job", "jobid")
	if err != nil {
		return nil, err
	}
	for _, j := range g.jobs {
		if j.ID() == id {
			return j, nil
		}
	}
	return nil, &unknownJobError{id}
}

// pathID reads an id of 32 hex digits; name is what Flink calls it.
func pathID(r *http.Request, part, name string) (string, error) {
	id := strings.ToLower(r.PathValue(part))
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return "", refuse(http.StatusBadRequest, "Bad request, could not parse parameters: Cannot resolve path parameter (%s) from value %q.", name, r.PathValue(part))
	}
	return id, nil
}

package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// refreshMs is after how long the dashboard asks again.
const refreshMs = 3000

type configBody struct {
	RefreshInterval int64        `json:"refresh-interval"`
	TimezoneName    string       `json:"timezone-name"`
	TimezoneOffset  int64        `json:"timezone-offset"`
	Version         string       `json:"flink-version"`
	Revision        string       `json:"flink-revision"`
	Features        featuresBody `json:"features"`
}

type featuresBody struct {
	Submit  bool `json:"web-submit"`
	Cancel  bool `json:"web-cancel"`
	Rescale bool `json:"web-rescale"` // its buttons count processes, not workers
	History bool `json:"web-history"`
}

func (g *Gateway) clusterConfig(*http.Request) (answer, error) {
	zone, offset := time.Now().Zone()
	return answer{body: configBody{
		RefreshInterval: refreshMs, TimezoneName: zone, TimezoneOffset: int64(offset) * 1000,
		Version: g.cfg.Version, Revision: g.cfg.Commit + " @ unknown", Features: featuresBody{Cancel: true},
	}}, nil
}

type overviewBody struct {
	TaskManagers   int    `json:"taskmanagers"`
	SlotsTotal     int    `json:"slots-total"`
	SlotsAvailable int    `json:"slots-available"`
	Running        int    `json:"jobs-running"`
	Finished       int    `json:"jobs-finished"`
	Cancelled      int    `json:"jobs-cancelled"`
	Failed         int    `json:"jobs-failed"`
	Version        string `json:"flink-version"`
	Commit         string `json:"flink-commit"`
}

func (g *Gateway) clusterOverview(r *http.Request) (answer, error) {
	all, err := g.pictures(r.Context())
	if err != nil {
		return answer{}, err
	}
	body := overviewBody{Version: g.cfg.Version, Commit: g.cfg.Commit}
	for _, w := range g.workersOf(all) {
		body.TaskManagers++
		body.SlotsTotal += w.slots
		body.SlotsAvailable += w.slots - w.busy
	}
	for _, p := range all {
		switch p.State {
		case Finished, Suspended:
			body.Finished++
		case Canceled:
			body.Cancelled++
		case Failed:
			body.Failed++
		default:
			body.Running++
		}
	}
	return answer{body: body}, nil
}

// shutDown acknowledges, and has the process end once the answer is on its way.
func (g *Gateway) shutDown(*http.Request) (answer, error) {
	if g.cfg.ShutDown == nil {
		return answer{}, refuse(http.StatusNotImplemented, "This process is not ended by a request.")
	}
	g.log.Info("the process is asked to end by DELETE /cluster")
	g.cfg.ShutDown()
	return answer{body: none{}}, nil
}

func (g *Gateway) processConfig(*http.Request) (answer, error) {
	settings := slices.Clone(g.cfg.Settings)
	for i, s := range settings {
		settings[i].Value = masked(s.Key, s.Value)
	}
	return answer{body: append([]Setting{}, settings...)}, nil
}

// secretKeys are parts of the keys whose values nobody is told.
var secretKeys = []string{"password", "secret", "fs.azure.account.key", "apikey", "api-key", "api_key", "auth-params", "service-key", "token", "basic-auth", "jaas.config", "http-headers", "authorization", "cookie"}

// masked hides the value of a key that names a secret. That a file holds one is no secret.
func masked(key, value string) string {
	key = strings.ToLower(key)
	if value == "" || strings.HasSuffix(key, "_file") || strings.HasSuffix(key, "token_url") {
		return value
	}
	for _, s := range secretKeys {
		if strings.Contains(key, s) {
			return "******"
		}
	}
	return value
}

type environmentBody struct {
	JVM       jvmBody  `json:"jvm"`
	Classpath []string `json:"classpath"`
}

type jvmBody struct {
	Version string   `json:"version"`
	Arch    string   `json:"arch"`
	Options []string `json:"options"`
}

func (g *Gateway) environment(*http.Request) (answer, error) {
	return answer{body: environmentBody{jvmBody{runtime.Version(), runtime.GOARCH, []string{}}, []string{}}}, nil
}

type logsBody struct {
	Logs []struct{} `json:"logs"`
}

// logs are none: the process writes its log to standard error, and keeps no file of it.
func (g *Gateway) logs(*http.Request) (answer, error) {
	return answer{body: logsBody{[]struct{}{}}}, nil
}

type threadsBody struct {
	Threads []threadBody `json:"threadInfos"`
}

type threadBody struct {
	Name string `json:"threadName"`
	Text string `json:"stringifiedThreadInfo"`
}

// mostThreads bounds what a dump shows of goroutines with one stack.
const mostThreads = 1000

// threadDump shows the goroutines, those of one stack together.
func (g *Gateway) threadDump(*http.Request) (answer, error) {
	var text bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		return answer{}, fmt.Errorf("dumping the goroutines: %w", err)
	}
	body := threadsBody{[]threadBody{}}
	for _, stack := range strings.Split(strings.TrimSpace(text.String()), "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		if strings.HasPrefix(head, "goroutine profile:") {
			_, stack, _ = strings.Cut(stack, "\n")
			head, _, _ = strings.Cut(stack, "\n")
		}
		if len(body.Threads) < mostThreads {
			count, _, _ := strings.Cut(head, " ")
			body.Threads = append(body.Threads, threadBody{Name: count + " goroutines", Text: stack + "\n"})
		}
	}
	return answer{body: body}, nil
}

type applicationBody struct {
	ID       string           `json:"id"`
	Name     string           `json:"name"`
	Start    int64            `json:"start-time"`
	End      int64            `json:"end-time"`
	Duration int64            `json:"duration"`
	Status   State            `json:"status"`
	Jobs     any              `json:"jobs"`
	Times    map[string]int64 `json:"timestamps,omitempty"`
}

// applications are the jobs once more: each is an application of its own.
func (g *Gateway) applications(r *http.Request) (answer, error) {
	all, err := g.pictures(r.Context())
	if err != nil {
		return answer{}, err
	}
	list := []applicationBody{}
	for _, p := range all {
		list = append(list, p.application(map[State]int{p.State: 1}))
	}
	return answer{body: map[string]any{"applications": list}}, nil
}

func (g *Gateway) application(r *http.Request) (answer, error) {
	p, err := g.look(r)
	if err != nil {
		return answer{}, err
	}
	body := p.application([]jobOverview{p.overview()})
	body.Times = p.times()
	return answer{body: body}, nil
}

func (p *seen) application(jobs any) applicationBody {
	return applicationBody{
		ID: p.id, Name: p.Name, Start: millis(p.Began()), End: endMillis(p.Ended()), Duration: p.duration(), Status: p.State, Jobs: jobs,
	}
}

// seen is a picture of a job with its id, at a moment.
type seen struct {
	Picture
	id  string
	now time.Time
}

func (g *Gateway) pictures(ctx context.Context) ([]*seen, error) {
	var all []*seen
	for _, j := range g.jobs {
		p, err := j.Look(ctx)
		if err != nil {
			return nil, fmt.Errorf("asking job %s how it does: %w", j.ID(), err)
		}
		all = append(all, &seen{p, j.ID(), time.Now()})
	}
	return all, nil
}

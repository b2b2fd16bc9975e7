package gateway

import (
	"net/http"
	"slices"
)

// workerSum is a process with what it does for all of its jobs.
type workerSum struct {
	Process
	jobs        []string
	slots, busy int // workers of all jobs, and calls in progress
}

// workersOf returns each process once that works for one of the jobs.
func (g *Gateway) workersOf(all []*seen) []*workerSum {
	var sums []*workerSum
	for _, p := range all {
		for _, w := range p.Workers {
			i := slices.IndexFunc(sums, func(s *workerSum) bool { return s.ID == w.Process.ID })
			if i < 0 {
				i = len(sums)
				sums = append(sums, &workerSum{Process: w.Process})
			}
			sums[i].jobs = append(sums[i].jobs, p.id)
			if !w.State.Final() {
				sums[i].slots += w.Status.Workers
				sums[i].busy += min(w.Status.Busy, w.Status.Workers)
			}
		}
	}
	return sums
}

type taskManagerBody struct {
	ID            string       `json:"id"`
	Path          string       `json:"path"`
	DataPort      int          `json:"dataPort"`
	JMXPort       int          `json:"jmxPort"`
	Heartbeat     int64        `json:"timeSinceLastHeartbeat"` // a time, whatever the name says
	Slots         int          `json:"slotsNumber"`
	Free          int          `json:"freeSlots"`
	Assigned      int          `json:"assignedTasks"`
	TotalResource resourceBody `json:"totalResource"`
	FreeResource  resourceBody `json:"freeResource"`
	Hardware      hardwareBody `json:"hardware"`
	Memory        memoryBody   `json:"memoryConfiguration"`
}

// resourceBody is in MiB. Go has one heap for all, so that nothing is set apart.
type resourceBody struct {
	CPUs     float64        `json:"cpuCores"`
	Heap     int64          `json:"taskHeapMemory"`
	OffHeap  int64          `json:"taskOffHeapMemory"`
	Managed  int64          `json:"managedMemory"`
	Network  int64          `json:"networkMemory"`
	Extended map[string]any `json:"extendedResources"`
}

type hardwareBody struct {
	CPUs     int   `json:"cpuCores"`
	Physical int64 `json:"physicalMemory"`
	Free     int64 `json:"freeMemory"`
	Managed  int64 `json:"managedMemory"`
}

// memoryBody is in bytes. Go has one heap for all.
type memoryBody struct {
	FrameworkHeap    int64 `json:"frameworkHeap"`
	TaskHeap         int64 `json:"taskHeap"`
	FrameworkOffHeap int64 `json:"frameworkOffHeap"`
	TaskOffHeap      int64 `json:"taskOffHeap"`
	Network          int64 `json:"networkMemory"`
	Managed          int64 `json:"managedMemory"`
	Metaspace        int64 `json:"jvmMetaspace"`
	Overhead         int64 `json:"jvmOverhead"`
	Flink            int64 `json:"totalFlinkMemory"`
	Process          int64 `json:"totalProcessMemory"`
}

func (w *workerSum) body() taskManagerBody {
	resource := resourceBody{CPUs: float64(w.CPUs), Heap: w.Memory.Limit >> 20, Extended: map[string]any{}}
	b := taskManagerBody{
		ID: w.ID, Path: w.Endpoint, DataPort: w.port(), JMXPort: -1, Heartbeat: millis(w.Seen), Slots: w.slots, Free: w.slots - w.busy,
		Assigned: 3 * len(w.jobs), TotalResource: resource, FreeResource: resource,
		Hardware: hardwareBody{CPUs: w.CPUs, Physical: w.Memory.Machine, Free: w.Memory.Free},
		Memory:   memoryBody{TaskHeap: w.Memory.HeapHeld, Overhead: w.Memory.Other, Flink: w.Memory.HeapHeld, Process: w.Memory.HeapHeld + w.Memory.Other},
	}
	return b
}

type taskManagerDetails struct {
	taskManagerBody
	Slots   []slotBody         `json:"allocatedSlots"`
	Metrics taskManagerMetrics `json:"metrics"`
}

type slotBody struct {
	Job      string       `json:"jobId"`
	Assigned int          `json:"assignedTasks"`
	Resource resourceBody `json:"resource"`
}

// taskManagerMetrics are those that the page of a task manager shows; what a Go process has not is 0.
type taskManagerMetrics struct {
	HeapUsed          int64           `json:"heapUsed"`
	HeapCommitted     int64           `json:"heapCommitted"`
	HeapMax           int64           `json:"heapMax"`
	NonHeapUsed       int64           `json:"nonHeapUsed"`
	NonHeapCommitted  int64           `json:"nonHeapCommitted"`
	NonHeapMax        int64           `json:"nonHeapMax"`
	DirectCount       int64           `json:"directCount"`
	DirectUsed        int64           `json:"directUsed"`
	DirectMax         int64           `json:"directMax"`
	MappedCount       int64           `json:"mappedCount"`
	MappedUsed        int64           `json:"mappedUsed"`
	MappedMax         int64           `json:"mappedMax"`
	SegmentsAvailable int64           `json:"memorySegmentsAvailable"`
	SegmentsTotal     int64           `json:"memorySegmentsTotal"`
	NettySegAvailable int64           `json:"nettyShuffleMemorySegmentsAvailable"`
	NettySegUsed      int64           `json:"nettyShuffleMemorySegmentsUsed"`
	NettySegTotal     int64           `json:"nettyShuffleMemorySegmentsTotal"`
	NettyAvailable    int64           `json:"nettyShuffleMemoryAvailable"`
	NettyUsed         int64           `json:"nettyShuffleMemoryUsed"`
	NettyTotal        int64           `json:"nettyShuffleMemoryTotal"`
	GarbageCollectors []collectorBody `json:"garbageCollectors"`
}

type collectorBody struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
	Time  int64  `json:"time"`
}

func (g *Gateway) taskManagers(r *http.Request) (answer, error) {
	all, err := g.pictures(r.Context())
	list := []taskManagerBody{}
	for _, w := range g.workersOf(all) {
		list = append(list, w.body())
	}
	return answer{body: map[string]any{"taskmanagers": list}}, err
}

// worker returns the process that the path names.
func (g *Gateway) worker(r *http.Request) (*workerSum, error) {
	all, err := g.pictures(r.Context())
	if err != nil {
		return nil, err
	}
	id := r.PathValue("worker")
	for _, w := range g.workersOf(all) {
		if w.ID == id {
			return w, nil
		}
	}
	return nil, refuse(http.StatusNotFound, "Could not find TaskExecutor %s.", id)
}

func (g *Gateway) taskManager(r *http.Request) (answer, error) {
	w, err := g.worker(r)
	if err != nil {
		return answer{}, err
	}
	m := w.Memory
	body := taskManagerDetails{taskManagerBody: w.body(), Slots: []slotBody{}, Metrics: taskManagerMetrics{
		HeapUsed: m.HeapUsed, HeapCommitted: m.HeapHeld, HeapMax: m.Limit, NonHeapUsed: m.Other, NonHeapCommitted: m.Other, NonHeapMax: -1,
		GarbageCollectors: []collectorBody{{"Go", m.Collections, m.CollectingMs}},
	}}
	for _, job := range w.jobs {
		body.Slots = append(body.Slots, slotBody{job, 3, body.TotalResource})
	}
	return answer{body: body}, nil
}

func (g *Gateway) taskManagerLogs(r *http.Request) (answer, error) {
	if _, err := g.worker(r); err != nil {
		return answer{}, err
	}
	return g.logs(r)
}

func (g *Gateway) taskManagerThreads(r *http.Request) (answer, error) {
	if _, err := g.worker(r); err != nil {
		return answer{}, err
	}
	return g.threadDump(r)
}

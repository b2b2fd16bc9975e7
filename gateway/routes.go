package gateway

import (
	"net/http"
	"slices"
)

// right is what a request needs.
type right int

// The rights. Who may act may read.
const (
	open right = iota // no token, from anywhere
	read
	act
)

// route is one thing that can be asked.
type route struct {
	method, path string // as http.ServeMux has them
	right        right
	handle       func(g *Gateway, r *http.Request) (answer, error)
}

// routes are all of them. What is not here goes to the files of the dashboard, or is unknown.
func routes() []route { return slices.Concat(clusterRoutes(), jobRoutes(), vertexRoutes()) }

// clusterRoutes are about the processes.
func clusterRoutes() []route {
	return []route{
		{"GET", "/config", read, (*Gateway).clusterConfig},
		{"GET", "/overview", read, (*Gateway).clusterOverview},
		{"DELETE", "/cluster", act, (*Gateway).shutDown},
		{"GET", "/applications/overview", read, (*Gateway).applications},
		{"GET", "/applications/{job}", read, (*Gateway).application},

		{"GET", "/jobmanager/config", read, (*Gateway).processConfig},
		{"GET", "/jobmanager/environment", read, (*Gateway).environment},
		{"GET", "/jobmanager/metrics", read, (*Gateway).processMetrics},
		{"GET", "/jobmanager/logs", read, (*Gateway).logs},
		{"GET", "/jobmanager/thread-dump", read, (*Gateway).threadDump},
		{"GET", "/taskmanagers", read, (*Gateway).taskManagers},
		{"GET", "/taskmanagers/metrics", read, (*Gateway).taskManagersMetrics},
		{"GET", "/taskmanagers/{worker}", read, (*Gateway).taskManager},
		{"GET", "/taskmanagers/{worker}/metrics", read, (*Gateway).taskManagerMetrics},
		{"GET", "/taskmanagers/{worker}/logs", read, (*Gateway).taskManagerLogs},
		{"GET", "/taskmanagers/{worker}/thread-dump", read, (*Gateway).taskManagerThreads},
	}
}

// jobRoutes are about the jobs, and change them.
func jobRoutes() []route {
	return []route{
		{"GET", "/jobs", read, (*Gateway).jobIDs},
		{"POST", "/jobs", act, (*Gateway).submit},
		{"GET", "/jobs/overview", read, (*Gateway).jobsOverview},
		{"GET", "/jobs/metrics", read, (*Gateway).jobsMetrics},
		{"GET", "/jobs/{job}", read, (*Gateway).jobDetails},
		{"PATCH", "/jobs/{job}", act, (*Gateway).cancel},
		{"GET", "/jobs/{job}/yarn-cancel", act, (*Gateway).cancel},
		{"GET", "/jobs/{job}/yarn-stop", act, (*Gateway).legacyStop},
		{"GET", "/jobs/{job}/status", read, (*Gateway).jobStatus},
		{"GET", "/jobs/{job}/execution-result", read, (*Gateway).jobResult},
		{"GET", "/jobs/{job}/plan", read, (*Gateway).jobPlan},
		{"GET", "/jobs/{job}/config", read, (*Gateway).jobConfig},
		{"GET", "/jobs/{job}/exceptions", read, (*Gateway).jobExceptions},
		{"GET", "/jobs/{job}/accumulators", read, (*Gateway).jobAccumulators},
		{"GET", "/jobs/{job}/checkpoints", read, (*Gateway).noCheckpoints},
		{"GET", "/jobs/{job}/checkpoints/config", read, (*Gateway).noCheckpoints},
		{"GET", "/jobs/{job}/metrics", read, (*Gateway).jobMetrics},
		{"GET", "/jobs/{job}/resource-requirements", read, (*Gateway).requirements},
		{"PUT", "/jobs/{job}/resource-requirements", act, (*Gateway).require},
		{"PATCH", "/jobs/{job}/rescaling", act, (*Gateway).rescale},
		{"GET", "/jobs/{job}/rescaling/{operation}", read, (*Gateway).rescaled},
		{"POST", "/jobs/{job}/stop", act, (*Gateway).stop},
		{"POST", "/jobs/{job}/savepoints", act, (*Gateway).savepoint},
		{"GET", "/jobs/{job}/savepoints/{operation}", read, (*Gateway).stopped},
		{"POST", "/jobs/{job}/checkpoints", act, (*Gateway).checkpoint},
		{"GET", "/jobs/{job}/checkpoints/{operation}", read, (*Gateway).checkpointed},
		{"PATCH", "/jobs/{job}/clientHeartbeat", act, (*Gateway).heartbeat},
		{"POST", "/savepoint-disposal", act, (*Gateway).dispose},
		{"GET", "/savepoint-disposal/{operation}", read, (*Gateway).disposed},
	}
}

// vertexRoutes are about the stages of a job.
func vertexRoutes() []route {
	return []route{
		{"GET", "/jobs/{job}/vertices/{vertex}", read, (*Gateway).vertexDetails},
		{"GET", "/jobs/{job}/vertices/{vertex}/backpressure", read, (*Gateway).backpressure},
		{"GET", "/jobs/{job}/vertices/{vertex}/watermarks", read, (*Gateway).watermarks},
		{"GET", "/jobs/{job}/vertices/{vertex}/taskmanagers", read, (*Gateway).vertexTaskManagers},
		{"GET", "/jobs/{job}/vertices/{vertex}/subtasktimes", read, (*Gateway).subtaskTimes},
		{"GET", "/jobs/{job}/vertices/{vertex}/accumulators", read, (*Gateway).accumulators},
		{"GET", "/jobs/{job}/vertices/{vertex}/subtasks/accumulators", read, (*Gateway).subtaskAccumulators},
		{"GET", "/jobs/{job}/vertices/{vertex}/metrics", read, (*Gateway).vertexMetrics},
		{"GET", "/jobs/{job}/vertices/{vertex}/subtasks/metrics", read, (*Gateway).subtaskMetrics},
	}
}

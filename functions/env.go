package functions

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// Env is what a function gets from the program it runs in.
type Env struct {
	// Name is the item's name in the pipeline file, or its place, such as "process[1].http".
	Name string
	// Pipeline is the name of the job.
	Pipeline string
	// Workers bounds the calls in progress over all functions of the pipeline.
	Workers int
	// Logger carries the pipeline's and the item's name.
	Logger *slog.Logger
	// Metrics registers under the pipeline's own registry, with the label pipeline already set. The items
	// of a pipeline share it: where a function may be used twice, wrap it with a label of Name.
	Metrics prometheus.Registerer
	// HTTP is the client that all functions of the pipeline share: one connection pool sized to the
	// workers. Its connections are never closed by one failing call.
	HTTP *http.Client
}

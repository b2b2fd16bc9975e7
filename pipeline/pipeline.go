package pipeline

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
	"github.com/a0c75104/enricher/streammanager"
)

// Pipeline is a pipeline file that was loaded and checked. It is immutable.
type Pipeline struct {
	path  string
	cfg   config
	unset bool     // a variable is not set: the pipeline cannot be built
	read  *decoder // where each value stands
}

// Name returns the name of the job.
func (p *Pipeline) Name() string { return p.cfg.Name }

// File returns the file as it was named.
func (p *Pipeline) File() string { return p.path }

// WorstCase is the memory that the events of a pipeline may take, in bytes.
type WorstCase struct {
	InFlight  int64 // limits.in_flight_bytes
	Source    int64 // fetched and not yet read
	Sink      int64 // buffered by the client
	ErrorSink int64 // buffered by the client
	Caches    int64 // answers that http functions keep

	// One answer of Answer bytes may stand over the limit, with what is made of it. Answer is the largest
	// max_response, 0 where nothing is called.
	Answer int64
}

// Total returns the sum of the limit and the buffers.
func (w WorstCase) Total() int64 { return w.InFlight + w.Source + w.Sink + w.ErrorSink + w.Caches }

func (w WorstCase) String() string {
	s := func(n int64) string { return functions.Size(n).String() }
	text := fmt.Sprintf("%.1f MiB: %s in flight, %s fetched, %s in the sink, %s in the error sink",
		float64(w.Total())/(1<<20), s(w.InFlight), s(w.Source), s(w.Sink), s(w.ErrorSink))
	if w.Caches > 0 {
		text += fmt.Sprintf(", %s in caches", s(w.Caches))
	}
	text += "; one event larger than the limit is admitted alone"
	if w.Answer > 0 {
		text += fmt.Sprintf("; one answer of up to %s (max_response) may stand over it, with what is made of it", s(w.Answer))
	}
	return text
}

// WorstCaseBytes returns what the events of the pipeline may take in memory at most.
func (p *Pipeline) WorstCaseBytes() (WorstCase, error) {
	w := WorstCase{InFlight: p.cfg.Limits.InFlightBytes.Bytes()}
	for _, it := range p.cfg.Process {
		if o, ok := it.options.(*asynchttp.Options); ok {
			w.Answer = max(w.Answer, o.MaxResponse.Bytes())
			if o.Cache != nil {
				w.Caches += o.Cache.MaxBytes.Bytes()
			}
		}
	}
	if p.unset {
		return w, errors.New("summing up the buffers: the pipeline was loaded although variables are not set")
	}
	a := &assembly{p: p, log: slog.New(slog.DiscardHandler), dry: true}
	src, err := a.source()
	if err != nil {
		return w, err
	}
	dst, err := a.sink(&p.cfg.Sink, false)
	if err != nil {
		return w, err
	}
	w.Source, w.Sink = bufferOf(src), bufferOf(dst)
	if p.cfg.Repartition != nil {
		between, err := a.repartitionSink()
		if err != nil {
			return w, err
		}
		w.Sink += bufferOf(between)
	}
	if e := p.cfg.ErrorSink; e != nil {
		errs, err := a.sink(&e.sink, true)
		if err != nil {
			return w, err
		}
		w.ErrorSink = bufferOf(errs)
	}
	return w, nil
}

func bufferOf(v any) int64 {
	if b, ok := v.(streammanager.Buffered); ok {
		return b.BufferBytes()
	}
	return 0
}

// pathless returns the cause of an error about a file, for messages that name the file themselves.
func pathless(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

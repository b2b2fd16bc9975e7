package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/a0c75104/enricher/gateway"
	"github.com/a0c75104/enricher/pipeline"
)

// jobFlags say which gateway is asked, and how it is shown.
type jobFlags struct {
	load   loadFlags
	client gateway.ClientConfig
	file   string
	json   bool
}

func (a *app) jobCommand() *cobra.Command {
	f := &jobFlags{}
	cmd := &cobra.Command{
		Use:   "job",
		Short: "Look at running jobs and control them, by the gateway of one of their workers",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return errors.New("a command of job is missing") },
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.client.URL, "gateway", "", "`URL` of the gateway (default: that of the file, else http://127.0.0.1:8081)")
	flags.StringVarP(&f.file, "file", "f", "", "pipeline `FILE` of the job: names the job and where its gateway is")
	flags.StringVar(&f.client.TokenFile, "token-file", "", "`FILE` with the token (default: that of the file)")
	flags.StringVar(&f.client.CAFile, "ca-file", "", "`FILE` with the certificates that the gateway is checked against (default: the system's)")
	flags.StringVar(&f.client.CertFile, "cert-file", "", "`FILE` with the certificate that is shown to the gateway")
	flags.StringVar(&f.client.KeyFile, "key-file", "", "`FILE` with the key of that certificate")
	flags.BoolVar(&f.json, "json", false, "print what the gateway answers, as JSON")
	cmd.AddCommand(a.jobList(f), a.jobStatus(f), a.jobStop(f), a.jobCancel(f), a.jobRescale(f), a.jobBackpressure(f))
	return cmd
}

// about makes a command about one job, which may be left out where there is one alone.
func (a *app) about(f *jobFlags, use, short string, do func(ctx context.Context, j *remoteJob) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " [JOB]", Short: short, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, wanted, err := a.client(f)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				wanted = args[0]
			}
			j, err := findJob(cmd.Context(), c, wanted)
			if err != nil {
				return remoteError(err)
			}
			j.out, j.json = &printer{w: a.stdout, errs: a.stderr}, f.json
			return remoteError(do(cmd.Context(), j))
		},
	}
}

// remoteError makes what a gateway says a failure of the command.
func remoteError(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	var refused *gateway.RequestError
	if errors.As(err, &refused) {
		err = errors.New(strings.Join(refused.Texts, "\n"))
	}
	return failed(err)
}

// client makes the client that the flags and the file ask for. name is the job of the file, "" without one.
func (a *app) client(f *jobFlags) (c *gateway.Client, name string, err error) {
	cfg := f.client
	if f.file != "" {
		loaded, err := a.load(a.stderr, []string{f.file}, f.load, true)
		if err != nil {
			return nil, "", err
		}
		name = loaded[0].Name()
		own, _ := pipeline.Gateway(loaded...)
		if cfg.TokenFile == "" {
			cfg.TokenFile = own.Access.TokenFile
		}
		if cfg.URL == "" {
			if cfg.URL, err = urlOf(own); err != nil {
				return nil, "", err
			}
		}
	}
	if cfg.URL == "" {
		cfg.URL = "http://127.0.0.1:8081"
	}
	c, err = gateway.NewClient(cfg)
	return c, name, err
}

// urlOf is where the gateway of a file is reached from here.
func urlOf(cfg gateway.Config) (string, error) {
	host, port, _ := net.SplitHostPort(cfg.Listen)
	if h, p, err := net.SplitHostPort(cfg.Advertise); err == nil {
		host, port = h, p
	} else if cfg.Advertise != "" {
		host = cfg.Advertise
	}
	if port == "0" {
		return "", errors.New("gateway.listen of the file takes any free port: give --gateway URL, which the log of the worker names")
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http://"
	if cfg.Access.TLS != nil {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port), nil
}

// jobRow is a job in a list.
type jobRow struct {
	ID         string `json:"jid"`
	Name       string `json:"name"`
	State      string `json:"state"`
	Start      int64  `json:"start-time"`
	Duration   int64  `json:"duration"`
	Unfinished int64  `json:"unfinished-events"`
}

// remoteJob is a job at a gateway.
type remoteJob struct {
	jobRow
	c    *gateway.Client
	out  *printer
	json bool
}

func (j *remoteJob) path(rest string) string { return "/jobs/" + j.ID + rest }

// findJob finds the job that is meant, by name or id, or as the only one.
func findJob(ctx context.Context, c *gateway.Client, wanted string) (*remoteJob, error) {
	var list struct {
		Jobs []jobRow `json:"jobs"`
	}
	if err := c.Get(ctx, "/jobs/overview", &list); err != nil {
		return nil, err
	}
	var names []string
	for _, row := range list.Jobs {
		if row.Name == wanted || row.ID == strings.ToLower(wanted) || wanted == "" && len(list.Jobs) == 1 {
			return &remoteJob{jobRow: row, c: c}, nil
		}
		names = append(names, row.Name)
	}
	switch {
	case len(names) == 0:
		return nil, errors.New("the gateway knows no job")
	case wanted == "":
		return nil, fmt.Errorf("name one of the jobs %s", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("the gateway knows no job %q; it has %s", wanted, strings.Join(names, ", "))
}

func (a *app) jobList(f *jobFlags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the jobs of a gateway", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.client(f)
			if err != nil {
				return err
			}
			raw, err := c.Do(cmd.Context(), http.MethodGet, "/jobs/overview", nil)
			if err != nil {
				return remoteError(err)
			}
			out := &printer{w: a.stdout, errs: a.stderr}
			if f.json {
				return out.raw(raw)
			}
			return out.jobs(raw)
		},
	}
}

func (a *app) jobStatus(f *jobFlags) *cobra.Command {
	return a.about(f, "status", "Show how a job does", func(ctx context.Context, j *remoteJob) error {
		if j.json {
			raw, err := j.c.Do(ctx, http.MethodGet, j.path(""), nil)
			if err != nil {
				return err
			}
			return j.out.raw(raw)
		}
		return j.status(ctx)
	})
}

func (a *app) jobBackpressure(f *jobFlags) *cobra.Command {
	return a.about(f, "backpressure", "Show how source, process and sink of a job spend their time", func(ctx context.Context, j *remoteJob) error {
		return j.backpressure(ctx)
	})
}

func (a *app) jobCancel(f *jobFlags) *cobra.Command {
	return a.about(f, "cancel", "End a job at once: what is not committed is read again by its next run", func(ctx context.Context, j *remoteJob) error {
		raw, err := j.c.Do(ctx, http.MethodPatch, j.path("?mode=cancel"), nil)
		switch {
		case err != nil:
			return err
		case j.json:
			return j.out.raw(raw)
		}
		return j.out.line("Job %s is cancelled.", j.Name)
	})
}

func (a *app) jobStop(f *jobFlags) *cobra.Command {
	var suspend bool
	cmd := a.about(f, "stop", "End a job in order: finish what was read, commit, and wait for its end", func(ctx context.Context, j *remoteJob) error {
		body := map[string]bool{"savepoint": false, "drain": !suspend}
		began := time.Now()
		raw, err := j.c.Operate(ctx, http.MethodPost, j.path("/stop"), body, j.path("/savepoints/"), func() { j.progress(ctx, began) })
		switch {
		case err != nil:
			return fmt.Errorf("stopping job %s: %w", j.Name, err)
		case j.json:
			return j.out.raw(raw)
		}
		var left struct {
			Unfinished int64 `json:"unfinished-events"`
		}
		if err := json.Unmarshal(raw, &left); err != nil {
			return fmt.Errorf("reading how job %s was stopped: %w", j.Name, err)
		}
		if left.Unfinished > 0 {
			return j.out.line("Job %s is stopped. %d events were left unfinished: its next run reads them again.", j.Name, left.Unfinished)
		}
		return j.out.line("Job %s is stopped. All that it had read is finished and committed.", j.Name)
	})
	cmd.Flags().BoolVar(&suspend, "suspend", false, "finish only what is in calls, and leave the rest to the next run")
	return cmd
}

func (a *app) jobRescale(f *jobFlags) *cobra.Command {
	var workers int
	cmd := a.about(f, "rescale", "Set how many calls each process of a job makes at once", func(ctx context.Context, j *remoteJob) error {
		raw, err := j.c.Operate(ctx, http.MethodPatch, j.path("/rescaling?parallelism="+strconv.Itoa(workers)), nil, j.path("/rescaling/"), func() {})
		switch {
		case err != nil:
			return fmt.Errorf("rescaling job %s: %w", j.Name, err)
		case j.json:
			return j.out.raw(raw)
		}
		return j.out.line("Job %s has %d workers in each process, until the process ends.", j.Name, workers)
	})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if workers < 1 {
			return fmt.Errorf("--workers %d: write 1 or more", workers)
		}
		return nil
	}
	cmd.Flags().IntVar(&workers, "workers", 0, "calls in progress at most, in each process")
	return cmd
}

// progress says how far a stop has come, on standard error.
func (j *remoteJob) progress(ctx context.Context, began time.Time) {
	var list struct {
		Jobs []jobRow `json:"jobs"`
	}
	if j.c.Get(ctx, "/jobs/overview", &list) != nil { // the poll that follows says what is wrong
		return
	}
	if i := slices.IndexFunc(list.Jobs, func(r jobRow) bool { return r.ID == j.ID }); i >= 0 {
		j.out.progress("stopping %s: %d events unfinished after %v", j.Name, list.Jobs[i].Unfinished, time.Since(began).Round(time.Second))
	}
}

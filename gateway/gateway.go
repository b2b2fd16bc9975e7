package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
)

// Config is what a user sets of a Gateway, and what it shows. Zero means what each field says.
type Config struct {
	Listen     string        // as it was given, for names by which the gateway is asked
	Advertise  string        // host[:port] under which others reach the gateway; "": where it listens
	ControlOff bool          // leaves what is open, alone
	Store      time.Duration // how long results of operations are kept, default 5m
	Dashboard  string        // directory of files served at /; "": none
	Access     Access
	Worker     string // id of this process, required
	Version    string
	Commit     string
	Settings   []Setting    // of the process
	Metrics    http.Handler // answers /metrics; nil: not found
	Probes     []Probe      // what /readyz asks
	ShutDown   func()       // ends the process; nil: not by a request
	Logger     *slog.Logger // default slog.Default()
}

// Probe tells whether one pipeline is ready, and if not, why.
type Probe struct {
	Pipeline string
	Ready    func() error
}

// mostOperations bounds what is kept of operations.
const mostOperations = 1000

// Gateway is the HTTP server of a process: health and metrics, which are open, and the control of its jobs.
type Gateway struct {
	cfg        Config
	log        *slog.Logger
	jobs       []Job
	listener   net.Listener
	hosts      ownHosts
	tokens     tokens
	operations *Operations
	refusals   refusals
	dashboard  *dashboard
	mux        *http.ServeMux
	http       *http.Server
}

// Listen opens the address. Where it is the default and taken, a free port does.
func Listen(ctx context.Context, addr string, isDefault bool, log *slog.Logger) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if isDefault && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(addr)
		l, err = config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
		if err == nil {
			log.Info("the default port is taken, another one serves", "default", addr)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening gateway.listen: %w", err)
	}
	return l, nil
}

// Endpoint is host:port under which a gateway that listens at l is reached.
func Endpoint(advertise string, l net.Listener) string {
	host, port, _ := net.SplitHostPort(l.Addr().String())
	if advertise == "" {
		if name, err := os.Hostname(); err == nil && isUnspecified(host) {
			host = name
		}
		return net.JoinHostPort(host, port)
	}
	if _, _, err := net.SplitHostPort(advertise); err != nil {
		return net.JoinHostPort(strings.Trim(advertise, "[]"), port)
	}
	return advertise
}

// New makes the gateway of jobs. It takes l, which Run or Close closes.
func New(cfg Config, l net.Listener, jobs ...Job) (*Gateway, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Store <= 0 {
		cfg.Store = 5 * time.Minute
	}
	if !cfg.ControlOff {
		if err := cfg.Access.Check(l.Addr().String()); err != nil {
			return nil, fmt.Errorf("gateway.listen: %w", err)
		}
	}
	g := &Gateway{
		cfg: cfg, log: cfg.Logger, jobs: jobs, listener: l, operations: NewOperations(cfg.Store, mostOperations),
		hosts: newOwnHosts(l.Addr().String(), cfg.Listen, cfg.Advertise), mux: http.NewServeMux(),
		refusals: refusals{log: cfg.Logger, said: map[string]*refusal{}},
	}
	g.cfg.Advertise = Endpoint(cfg.Advertise, l)
	var err error
	if g.tokens, err = newTokens(cfg.Access); err != nil {
		return nil, err
	}
	if cfg.Access.TLS != nil {
		if g.listener, err = cfg.Access.TLS.listener(l); err != nil {
			return nil, err
		}
	}
	if g.dashboard, err = openDashboard(cfg.Dashboard); err != nil {
		return nil, err
	}
	for _, rt := range routes() {
		g.mux.HandleFunc(rt.method+" "+rt.path, g.handler(rt))
	}
	g.mux.HandleFunc("/", g.other)
	quiet := slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug) // what half a request or a foreign certificate makes
	g.http = &http.Server{
		Handler: g, ErrorLog: quiet, MaxHeaderBytes: 64 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	return g, nil
}

// URL is where this process reaches its own gateway.
func (g *Gateway) URL() string {
	host, port, _ := net.SplitHostPort(g.listener.Addr().String())
	if isUnspecified(host) {
		host = "127.0.0.1"
	}
	if g.cfg.Access.TLS != nil {
		return "https://" + net.JoinHostPort(host, port)
	}
	return "http://" + net.JoinHostPort(host, port)
}

// isUnspecified reports whether a host stands for all addresses of the machine.
func isUnspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// handler holds requests to what a route needs and writes what it answers.
func (g *Gateway) handler(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := g.admit(r, rt.right); err != nil {
			writeRefusal(w, err)
			return
		}
		got, err := rt.handle(g, r)
		if err != nil {
			if status, texts := statusOf(err); status >= http.StatusInternalServerError {
				g.log.Error("a request failed", "method", r.Method, "path", short(r.URL.Path), "err", strings.Join(texts, " "))
			}
			writeError(w, err)
			return
		}
		if got.status == 0 {
			got.status = http.StatusOK
		}
		writeJSON(w, got.status, got.body)
	}
}

// writeRefusal writes an error, and how a token is to be shown where one is missing.
func writeRefusal(w http.ResponseWriter, err error) {
	if status, _ := statusOf(err); status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="enricher"`)
	}
	writeError(w, err)
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer g.hidePanic(w, r)
	w.Header().Set("X-Frame-Options", "DENY") // a page of another site must not have its user click the buttons of this one
	if r.ContentLength > mostBody {
		g.refusals.say(r, "its body is too large", "bytes", r.ContentLength)
		w.Header().Set("Connection", "close")
		writeError(w, refuse(http.StatusRequestEntityTooLarge, "The body of the request is larger than %d bytes.", mostBody))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	cleaned, err := clean(r.URL)
	if err != nil {
		g.refusals.say(r, "its path leads elsewhere")
		writeError(w, err)
		return
	}
	r = r.Clone(r.Context())
	r.URL = cleaned
	handle, isOpen := g.openHandler(r)
	if !g.hosts.has(r, r.Host) && (!isOpen || g.hosts.loopback) {
		g.refusals.say(r, "its Host is another", "host", short(r.Host))
		writeError(w, refuse(http.StatusForbidden, "The request was sent to another host than this one: see gateway.advertise."))
		return
	}
	switch {
	case isOpen:
		handle(w, r)
	case g.cfg.ControlOff:
		writeError(w, refuse(http.StatusNotFound, "Not found: %s (gateway.control is off)", short(r.URL.Path)))
	default:
		g.mux.ServeHTTP(w, r)
	}
}

// openHandler returns what answers a request that needs no token.
func (g *Gateway) openHandler(r *http.Request) (handle http.HandlerFunc, ok bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, false
	}
	switch r.URL.Path {
	case "/healthz":
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }, true
	case "/readyz":
		return g.readyz, true
	case "/metrics":
		if g.cfg.Metrics != nil {
			return g.cfg.Metrics.ServeHTTP, true
		}
	}
	return nil, false
}

// readyz answers 503 as long as a pipeline is not ready, with a line for each that is not.
func (g *Gateway) readyz(w http.ResponseWriter, _ *http.Request) {
	var causes strings.Builder
	for _, p := range g.cfg.Probes {
		if err := p.Ready(); err != nil {
			fmt.Fprintf(&causes, "%s: %v\n", p.Pipeline, err)
		}
	}
	if causes.Len() > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, causes.String())
		return
	}
	fmt.Fprintln(w, "ok")
}

// other answers what no route does: the files of the dashboard, the login, and what is unknown.
func (g *Gateway) other(w http.ResponseWriter, r *http.Request) {
	isGet := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case r.URL.Path == "/login" && isGet:
		g.loginPage(w)
	case r.URL.Path == "/login" && r.Method == http.MethodPost:
		g.login(w, r)
	case !isGet:
		err := g.admit(r, act)
		if err == nil {
			err = refuse(http.StatusNotFound, "Not found: %s", short(r.URL.Path))
		}
		writeRefusal(w, err)
	default:
		g.file(w, r)
	}
}

// Run serves until ctx ends.
func (g *Gateway) Run(ctx context.Context) {
	g.log.Info("serving /healthz, /readyz and /metrics", "url", g.URL(), "control", !g.cfg.ControlOff, "advertised", g.cfg.Advertise)
	if g.cfg.Access.Insecure && !g.cfg.Access.guarded() && !g.hosts.loopback && !g.cfg.ControlOff {
		g.log.Warn("gateway.insecure: anybody who reaches this address can stop and change the jobs")
	}
	ended := make(chan error, 1)
	go func() { ended <- g.http.Serve(g.listener) }()
	select {
	case err := <-ended:
		g.log.Error("the HTTP server ended, the pipelines go on without it", "err", err)
		return
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := g.http.Shutdown(last); err != nil {
		_ = g.http.Close() // ends connections that are still in use
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		g.log.Debug("server ended", "err", err)
	}
}

// Settle takes no more operations, and waits until all have ended and their results were fetched or forgotten, or ctx
// ends. Clients that poll would take a process that is gone for a failure.
func (g *Gateway) Settle(ctx context.Context) bool { return g.operations.Settle(ctx) }

// Pending reports whether there are results that nobody has fetched, or operations under way.
func (g *Gateway) Pending() bool { return g.operations.Pending() }

// Close ends what operations still run, and frees what New took.
func (g *Gateway) Close() error {
	g.operations.Close()
	err := g.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(err, g.dashboard.Close())
}

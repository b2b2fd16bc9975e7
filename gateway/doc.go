// Package gateway is the HTTP server of a process: health, readiness and metrics, which are open, and a REST API that
// tells about its jobs and controls them. The API is Flink's, so that Flink's command line and web dashboard work with it;
// docs/control.md says what each request means here.
//
// It owns the states of a job (Course), operations that take longer than a request (Operations), the bodies of the API and
// who may ask for what (Access). It leaves to others what a job is: REST knows a Job by its interface alone, and a Local is
// the one that carries it out here, with a streammanager.Supervisor.
//
// A gateway has the goroutines of its HTTP server, which end with Run, and one for each operation under way, which end
// with Close. Nothing it does waits for events.
//
//	l, err := gateway.Listen(ctx, "127.0.0.1:8081", true, log)
//	job := gateway.NewLocal(gateway.LocalConfig{Name: "orders", Process: gateway.ThisProcess("worker-0", l.Addr().String())}, supervisor)
//	g, err := gateway.New(gateway.Config{Worker: "worker-0"}, l, job)
//	go g.Run(serving)       // until serving ends
//	err = job.Run(ctx)      // the job itself
//	g.Settle(bounded)       // results that clients still poll for
package gateway

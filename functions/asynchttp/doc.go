// Package asynchttp is the http function and the HTTP client that all functions of a pipeline share.
//
// It owns one connection pool per Client, sized to the pipeline's workers and never closed by a failing
// call (functions with TLS settings, a socket or deny_private of their own have connections of their own,
// shared by equal settings), and what the pool knows of each host: until when the host asked to be left alone (Retry-After),
// and when it last answered well. It leaves waiting to the stream: a try that follows within 300 ms is
// made inside the call, by go-retryablehttp; for a longer wait the call returns event.Retry (an attempt)
// or event.Hold (none), and the worker is free. It starts no goroutine of its own; those of the
// connection pool end with their connections, see Client.Close.
//
// What a call does:
//
//	build      url, query, headers, body from the event; the host is checked against allow_hosts and routes
//	admit      before each try: the host asked to wait: event.Hold, without a request
//	try        one request with its redirects, its answer read within timeout and max_response; each step
//	           goes by routes, and takes credentials along to the host of the request alone
//	classify   what came: a status, or no whole answer and why; as and select: what can be read of it
//	decide     retry_recent, the rules of errors, the defaults: use, pass, drop, an error event, another try
//	report     what is known of the host learns what came and what follows
//	act        another try soon (inside), Retry or Hold, an error event
//	take       into: the answer becomes part of the event
//
// With bulk a call is for a batch. It finds out who is asked for together (groups), and makes the same steps for
// each request, up to decide: what comes of the request is the fate of all its events. Where its answer is good, each
// event gets its item and has a decision of its own (hand). A request that failed may be asked in halves (bisect).
//
// With cache an event first looks for an answer (lookUp): one that is kept, or that of a request which another event makes.
// It waits for that without a worker, for a bell (flight). One that asks (lead) leaves the answer to the others.
//
// Three rules are easy to break. A try counts as soon as it is sent, except one that is answered by a
// Retry-After that holds the whole host, and one of retry_recent; event.Attempts carries the number.
// total_timeout counts tries and the waits between them, but neither holds nor the time an event queues for a
// worker. And a method that is not idempotent is sent again only where the server cannot have carried it out.
package asynchttp

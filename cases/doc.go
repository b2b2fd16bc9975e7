// Package cases is what `enricher test` and package enrichertest are made of: the cases of a test file, each with
// events, canned answers of HTTP APIs, and what should become of the events.
//
// A case runs the functions of a pipeline as a run does, by pipeline.Rehearse: no source, sink or network is there,
// and time is virtual, so that a retry after ten minutes takes none. Virtual time is that of testing/synctest, also
// outside of tests: see docs/decisions/0056-virtual-time-by-synctest.md.
//
// The package starts a goroutine per case, which has ended when the case has, save for what a function of the user
// leaves behind.
package cases

// Package window keeps the order of keys: lanes, in which events wait for earlier unfinished events of
// their key, and windows, in which events gather into the batches that are dispatched.
//
// It is pure: it starts no goroutine, reads no clock (the time is an argument) and knows nothing of
// sources, functions or sinks.
package window

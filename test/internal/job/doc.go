// Package job is what suites with real processes have in common: events made from real ones, a slow API that
// they are enriched from, workers that are processes of "enricher run", and the books: what went in against
// what came out, in which order and how often.
//
// A suite lies in test/NAME and imports it; its topics and its broker are the suite's own.
package job

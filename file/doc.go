// Package file reads and writes JSON lines: one event's value per line, from a file or standard input
// and to a file or standard output. Keys, headers and timestamps have no place in a line: a source
// delivers events without key and headers, stamped with the time they were read, and a sink leaves
// them out. The line null is the JSON value null, not a tombstone; a sink writes a tombstone as that
// line.
//
// A source is one partition whose offset is the number of the line, from 1. It keeps no position: a
// new run starts at the first line. A line is taken without its line feed and otherwise byte for byte;
// lines of nothing but white space are no events.
//
// A sink acknowledges a record after the bytes of its line were written, and for a regular file synced
// to disk. What fails there never heals by itself, so it ends the pipeline.
//
// A source that reads something other than a regular file, and every sink, own one goroutine from
// Open to Close.
package file

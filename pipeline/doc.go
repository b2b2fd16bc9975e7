// Package pipeline reads the YAML file that names a source, a key, a window, functions, a sink and an
// error sink, and builds from it the stream that runs.
//
// The structs of config.go declare each key once: its name, type, default, bounds and line of
// documentation. The strict loader, the JSON Schema for editors and the table of keys in the docs are
// all made from that declaration, and so are the options of functions, which follow the same tags.
//
// Load reports every problem of a file at once, with file, line and column. It opens no socket and
// starts nothing, so that checking a file and running it agree. The text of a file goes through these
// steps, each in a file of its own: the YAML becomes a tree whose nodes know where they came from
// (tree.go), overlays and single values are laid over it (overlay.go), ${NAME} is replaced in scalars
// (resolve.go), the tree fills the declared structs (decode.go), and what no single key can tell is
// checked (check.go).
//
// The package starts no goroutine of its own; Run returns after those of the stream have ended.
package pipeline

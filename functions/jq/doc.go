// Package jq evaluates the expressions and templates of a pipeline file on events.
//
// An Expr is compiled once and evaluated on many events, from any number of goroutines. It reads as
// little of the value as it can: plain paths are read from the bytes, comparisons and conditions over
// them too, and only what is left runs in gojq on the decoded value. A Func is a jq program as a
// function of the chain: assignments and deletes of plain paths edit the bytes, any other program
// writes the value anew. A Template is text with interpolated expressions, escaped by place where it
// makes a URL.
//
// Numbers keep their spelling as long as nothing calculates with them: 64-bit integers, 1.0 and 1e400
// pass through an expression unchanged, also through a decoded value. Arithmetic on integers is exact
// at any size; on other numbers it is that of 64-bit floats. Objects that an expression builds have
// their members in the order written, and any other object that gojq made or changed has them sorted.
//
// Where gojq differs from jq the package follows gojq: an error on the left of // is not caught, for
// one. A value that is decoded as a whole may not have a member twice. An escape that names half of a
// surrogate pair, "\ud800", passes through a program as it is, counts as one character, and is an error
// where a program asks for its bytes or code point; in text that leaves JSON, as that of a template, it
// becomes U+FFFD.
//
// What an event may cost is bounded. An evaluation that takes longer than a second is an error. A built-in
// of gojq cannot be stopped, so that a program which loops, or calls one that takes more time than its input
// is long, runs in a goroutine of its own: one that goes on is left behind, and while four or more of one
// program do, the program is refused. Nothing waits for those; they are the only goroutines that outlive a call. Regular expressions take time in proportion to the text. A string or
// list of more than 64 MiB that a program builds, a result as large or nested deeper than 10,000, and an
// element set more than 10,000 behind the end of its array are errors. Not bounded but by the time limit is
// how many values a program holds at once.
package jq

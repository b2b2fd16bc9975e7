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
// one. A value that is decoded as a whole may not have a member twice, and an escape in it that names half of
// a surrogate pair becomes U+FFFD when the program writes it again.
//
// The package starts no goroutine. An evaluation that takes longer than a second ends with an error,
// except within one single built-in that works on a large value.
package jq

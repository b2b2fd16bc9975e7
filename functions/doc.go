// Package functions is the registry of process functions and the types their options are made of.
//
// A function is a Spec: a name, a line of documentation, a plain struct of options and a constructor.
// The pipeline loader decodes the options from YAML, checks them, and calls the constructor; nothing
// registers itself and there are no globals.
//
// The fields of an options struct carry tags: yaml is the key, doc one line about it, default the text
// it has when left out, required:"true" and enum:"a|b" what they say. The field types Path, Expr,
// Template, Size, Duration and Secret check their text as it is loaded; a constructor that finds fault
// with one option returns an *OptionError, and the loader adds file, line and column.
//
// The package starts no goroutine.
package functions

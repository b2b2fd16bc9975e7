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
// A constructor checks and opens nothing. The loader calls it to check a file, for validate as for run,
// with an Env that has nothing behind it (no network, no log, metrics of its own), and closes what it made,
// where that has a method Close(context.Context) error, before it returns. A run then calls the
// constructor again. So what is slow or must be there once, such as a connection or a model, is opened by
// the first event, with sync.OnceValues, and freed by Close.
//
// The package starts no goroutine.
package functions

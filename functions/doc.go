// Package functions is the registry of process functions and the types their options are made of.
//
// A function is a Spec: a name, a line of documentation, a plain struct of options and a constructor.
// The pipeline loader decodes the options from YAML, checks them, and calls the constructor; nothing
// registers itself and there are no globals.
package functions

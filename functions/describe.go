package functions

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// OptionDoc describes one option for people.
type OptionDoc struct {
	// Path is the key, or keys joined by dots, with [] behind that of a list; "" where the function takes a single value.
	Path string
	// Type is the type in a user's words, such as "duration" or "list of text".
	Type string
	// Default is the text of the default, "" for none.
	Default string
	// Doc is the line of documentation.
	Doc string
	// Required reports that the option cannot be left out.
	Required bool
	// Enum holds the values that are allowed, if not all are.
	Enum []string
}

// DescribeOptions lists the options of a function in the order of its struct.
func DescribeOptions(s Spec) []OptionDoc {
	t := s.options
	if t == nil {
		return nil
	}
	if isScalar(t) || t.Kind() != reflect.Struct {
		return []OptionDoc{{Type: typeName(t), Doc: s.doc, Required: true}}
	}
	return describe(t, "")
}

func describe(t reflect.Type, prefix string) []OptionDoc {
	var out []OptionDoc
	for f := range fields(t) {
		key := prefix + key(f)
		d := OptionDoc{
			Path: key, Type: typeName(f.Type), Default: f.Tag.Get("default"), Doc: f.Tag.Get("doc"),
			Required: f.Tag.Get("required") == "true",
		}
		if e := f.Tag.Get("enum"); e != "" {
			d.Enum = strings.Split(e, "|")
		}
		out = append(out, d)
		if n := plainStruct(f.Type); n != nil {
			out = append(out, describe(n, key+".")...)
		} else if n := listed(f.Type); n != nil {
			out = append(out, describe(n, key+"[].")...)
		}
	}
	return out
}

// fields yields the fields that are options, those of embedded plain structs among them.
func fields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for f := range t.Fields() {
			if !f.IsExported() || f.Tag.Get("yaml") == "-" {
				continue
			}
			if f.Anonymous && f.Tag.Get("yaml") == ",inline" {
				for g := range fields(f.Type) {
					if !yield(g) {
						return
					}
				}
				continue
			}
			if !yield(f) {
				return
			}
		}
	}
}

func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

var (
	textType  = reflect.TypeFor[encoding.TextUnmarshaler]()
	typeNames = map[reflect.Type]string{
		reflect.TypeFor[Path]():       "path",
		reflect.TypeFor[Expr]():       "jq expression",
		reflect.TypeFor[AnswerExpr](): "jq expression",
		reflect.TypeFor[Template]():   "template",
		reflect.TypeFor[Program]():    "jq program",
		reflect.TypeFor[Size]():       "size",
		reflect.TypeFor[Duration]():   "duration",
		reflect.TypeFor[Secret]():     "secret",
	}
)

// isScalar reports whether t is read from one text.
func isScalar(t reflect.Type) bool { return reflect.PointerTo(t).Implements(textType) }

// isCustom reports whether t reads its YAML itself. The type of the method's argument belongs to the
// YAML library, which this package does not import.
func isCustom(t reflect.Type) bool {
	_, ok := reflect.PointerTo(t).MethodByName("UnmarshalYAML")
	return ok
}

// plainStruct returns the struct of options that t is or points to, nil if it is none.
func plainStruct(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || isScalar(t) || isCustom(t) {
		return nil
	}
	return t
}

// listed returns the struct of options that t is a list of, nil if it is none.
func listed(t reflect.Type) reflect.Type {
	if t.Kind() != reflect.Slice || isScalar(t) || isCustom(t) {
		return nil
	}
	return plainStruct(t.Elem())
}

func typeName(t reflect.Type) string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	switch v := reflect.New(t).Interface().(type) {
	case interface{ Words() string }: // a type that reads its YAML itself, and says how it is written
		return v.Words()
	case interface{ Switch(on bool) }:
		return "true, or map"
	}
	if isCustom(t) {
		return "any"
	}
	if isScalar(t) {
		return "text"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "whole number"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	case reflect.Map:
		return "map of " + typeName(t.Elem())
	default:
		return "map"
	}
}

// checkOptions returns what is wrong with a type of options.
func checkOptions(t reflect.Type) []error {
	if isScalar(t) || isCustom(t) {
		return nil
	}
	if t.Kind() != reflect.Struct {
		return []error{fmt.Errorf("options of type %s: want a struct or one option type", t)}
	}
	return checkFields(t, "", nil)
}

func checkFields(t reflect.Type, prefix string, outer []reflect.Type) []error {
	if slices.Contains(outer, t) {
		return []error{fmt.Errorf("option %q: a struct within itself", strings.TrimSuffix(strings.TrimSuffix(prefix, "."), "[]"))}
	}
	outer = append(slices.Clip(outer), t)
	var errs []error
	seen := map[string]bool{}
	for f := range fields(t) {
		k := key(f)
		switch {
		case !namePattern.MatchString(k):
			errs = append(errs, fmt.Errorf("field %s: the yaml tag %q is no snake_case key", f.Name, k))
			continue
		case seen[k]:
			errs = append(errs, fmt.Errorf("option %q: two fields have this key", prefix+k))
		case f.Tag.Get("doc") == "":
			errs = append(errs, fmt.Errorf("option %q: the doc tag is missing", prefix+k))
		}
		seen[k] = true
		if err := checkField(f); err != nil {
			errs = append(errs, fmt.Errorf("option %q: %w", prefix+k, err))
		}
		if n := plainStruct(f.Type); n != nil {
			errs = append(errs, checkFields(n, prefix+k+".", outer)...)
		} else if n := listed(f.Type); n != nil {
			errs = append(errs, checkFields(n, prefix+k+"[].", outer)...)
		}
	}
	return errs
}

func checkField(f reflect.StructField) error {
	if err := checkType(f.Type); err != nil {
		return err
	}
	def, ok := f.Tag.Lookup("default")
	if !ok {
		return nil
	}
	if f.Tag.Get("required") == "true" {
		return fmt.Errorf("a required option with a default")
	}
	if e := f.Tag.Get("enum"); e != "" && !slices.Contains(strings.Split(e, "|"), def) {
		return fmt.Errorf("the default %q is none of %s", def, e)
	}
	if err := checkDefault(f.Type, def); err != nil {
		return fmt.Errorf("the default %q: %w", def, err)
	}
	return nil
}

func checkType(t reflect.Type) error {
	if isScalar(t) || isCustom(t) {
		return nil
	}
	if t == reflect.TypeFor[time.Duration]() {
		return errors.New("a time.Duration reads no units: use functions.Duration")
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return checkType(t.Elem())
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return fmt.Errorf("type %s: the keys of a map are text", t)
		}
		return checkType(t.Elem())
	case reflect.Struct, reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return nil
	default:
		return fmt.Errorf("type %s cannot be read from a pipeline file", t)
	}
}

func checkDefault(t reflect.Type, text string) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if isScalar(t) {
		return reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
	}
	var err error
	switch t.Kind() {
	case reflect.Bool:
		_, err = strconv.ParseBool(text)
	case reflect.Float32, reflect.Float64:
		_, err = strconv.ParseFloat(text, 64)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		_, err = strconv.ParseInt(text, 10, t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		_, err = strconv.ParseUint(text, 10, t.Bits())
	}
	return err
}

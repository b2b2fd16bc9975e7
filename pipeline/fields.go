package pipeline

import (
	"reflect"
	"strings"

	"github.com/a0c75104/enricher/functions"
)

// field is one declared key of a struct.
type field struct {
	key string
	tag reflect.StructTag
	v   reflect.Value
}

// fieldsOf lists the declared keys of the struct v in order, those of inlined structs among them.
func fieldsOf(v reflect.Value) []field {
	var out []field
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		name, opt, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case opt == "inline":
			out = append(out, fieldsOf(v.Field(i))...)
		case !f.IsExported() || name == "-":
		case name != "":
			out = append(out, field{key: name, tag: f.Tag, v: v.Field(i)})
		}
	}
	return out
}

func keysOf(t reflect.Type) []string {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var out []string
	for _, f := range fieldsOf(reflect.New(t).Elem()) {
		out = append(out, f.key)
	}
	return out
}

// wanted says in a user's words what is read into t.
func wanted(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[functions.Path]():
		return "a path, such as .a.b"
	case reflect.TypeFor[functions.Expr](), reflect.TypeFor[functions.AnswerExpr](), reflect.TypeFor[functions.Program]():
		return "a jq text"
	case reflect.TypeFor[functions.Template]():
		return "a text with \\(jq) in it"
	case reflect.TypeFor[functions.Size]():
		return "a size, such as 64MiB"
	case reflect.TypeFor[functions.Duration]():
		return "a duration, such as 500ms or 10s"
	case reflect.TypeFor[functions.Secret]():
		return "a text"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "a map"
	case reflect.Struct:
		if isText(t) {
			return "a text"
		}
		return "a map"
	case reflect.Pointer:
		return wanted(t.Elem())
	default:
		return "a text"
	}
}

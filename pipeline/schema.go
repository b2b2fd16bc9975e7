package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/functions"
)

// Schema returns the JSON Schema of pipeline files, for editors. specs are the functions of the user;
// those that are built in are known.
func Schema(specs []functions.Spec) ([]byte, error) {
	all, err := allSpecs(specs)
	if err != nil {
		return nil, err
	}
	s := &schemer{specs: all}
	root, _ := s.of(reflect.TypeFor[config](), "")
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "enricher pipeline"
	root["patternProperties"] = map[string]any{"^x-": map[string]any{}}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("encoding the schema: %w", err)
	}
	return out.Bytes(), nil
}

// schemer makes JSON Schemas from declared types.
type schemer struct{ specs []functions.Spec }

func text() map[string]any    { return map[string]any{"type": "string"} }
func boolean() map[string]any { return anyOf(map[string]any{"type": "boolean"}, reference()) }
func list(of map[string]any) map[string]any {
	return map[string]any{"type": "array", "items": of}
}

// reference is the text of a ${NAME} that becomes a number or boolean.
func reference() map[string]any { return map[string]any{"type": "string", "pattern": `\$\{`} }

func anyOf(of ...map[string]any) map[string]any { return map[string]any{"anyOf": of} }

func described(schema map[string]any, doc string) map[string]any {
	if doc == "" {
		return schema
	}
	out := maps.Clone(schema)
	out["description"] = doc
	return out
}

// of returns the schema of t and its name in the table of keys.
func (s *schemer) of(t reflect.Type, tag reflect.StructTag) (map[string]any, string) {
	v := reflect.New(t)
	if c, ok := v.Interface().(custom); ok {
		return c.schema(s)
	}
	if _, ok := v.Interface().(yaml.Unmarshaler); ok {
		if w, ok := v.Interface().(interface{ Words() string }); ok {
			if t.Kind() != reflect.Slice {
				return map[string]any{}, w.Words()
			}
			elem, _ := s.of(t.Elem(), "")
			some := list(elem)
			some["minItems"] = 1
			return anyOf(elem, some), w.Words() // a list that reads itself takes one element as it is too
		}
		return map[string]any{}, "text or map"
	}
	if _, ok := v.Interface().(switched); ok {
		return anyOf(boolean(), s.object(t)), "true, or map"
	}
	if e := tag.Get("enum"); e != "" {
		known := strings.Split(e, "|")
		return anyOf(map[string]any{"enum": known}, reference()), strings.Join(known, ", ")
	}
	if isText(t) {
		return ofText(t)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem(), tag)
	case reflect.Struct:
		return s.object(t), "map"
	case reflect.Slice:
		elem, name := s.of(t.Elem(), "")
		if elem["type"] == "string" {
			return anyOf(list(elem), text()), "list of " + name
		}
		if isText(t.Elem()) {
			return anyOf(list(elem), elem), "list of " + name
		}
		return list(elem), "list of " + name
	case reflect.Map:
		elem, name := s.of(t.Elem(), "")
		return map[string]any{"type": "object", "additionalProperties": elem}, "map of " + name
	case reflect.Bool:
		return boolean(), "true or false"
	case reflect.Float32, reflect.Float64:
		return anyOf(map[string]any{"type": "number"}, reference()), "number"
	case reflect.String:
		if t == reflect.TypeFor[value]() {
			return map[string]any{"type": []any{"string", "number", "boolean"}}, "text"
		}
		return text(), "text"
	default:
		return wholeNumber(tag), "whole number"
	}
}

func ofText(t reflect.Type) (map[string]any, string) {
	switch t {
	case reflect.TypeFor[functions.Path]():
		return text(), "path"
	case reflect.TypeFor[functions.Expr](), reflect.TypeFor[functions.AnswerExpr](), reflect.TypeFor[functions.Program]():
		return map[string]any{"type": []any{"string", "boolean", "number"}}, "jq"
	case reflect.TypeFor[functions.Template]():
		return map[string]any{"type": []any{"string", "boolean", "number"}}, "template"
	case reflect.TypeFor[functions.Size]():
		return map[string]any{"type": "string", "pattern": `^\d+ *(B|[kMG]B|[KMG]iB)$|\$\{`}, "size"
	case reflect.TypeFor[functions.Duration]():
		return map[string]any{"type": []any{"string", "integer"}, "pattern": `^(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$|^0$|\$\{`, "maximum": 0}, "duration"
	}
	if n, ok := reflect.New(t).Interface().(functions.Numeric); ok && n.Numeric() {
		return map[string]any{"type": []any{"string", "integer"}}, "text"
	}
	return text(), "text"
}

func wholeNumber(tag reflect.StructTag) map[string]any {
	n := map[string]any{"type": "integer"}
	if low, err := strconv.Atoi(tag.Get("min")); err == nil {
		n["minimum"] = low
	}
	return anyOf(n, reference())
}

func (s *schemer) object(t reflect.Type) map[string]any {
	props := map[string]any{}
	var required []string
	for _, f := range fieldsOf(reflect.New(t).Elem()) {
		p, _ := s.of(f.v.Type(), f.tag)
		p = described(p, f.tag.Get("doc"))
		if def, ok := f.tag.Lookup("default"); ok {
			p["default"] = defaultValue(f.v, def)
		}
		props[f.key] = p
		if f.tag.Get("required") == "true" {
			required = append(required, f.key)
		}
	}
	out := map[string]any{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		slices.Sort(required)
		out["required"] = required
	}
	return out
}

// defaultValue types the text of a default as JSON does.
func defaultValue(v reflect.Value, def string) any {
	if isText(v.Type()) {
		return def
	}
	c := reflect.New(v.Type()).Elem()
	if err := parseText(c, def, ""); err != nil {
		return def
	}
	return c.Interface()
}

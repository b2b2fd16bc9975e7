package pipeline

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/jq"
)

func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// isJQ reports whether the type is read from jq text.
func isJQ(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[functions.Expr](), reflect.TypeFor[functions.AnswerExpr](), reflect.TypeFor[functions.Program](), reflect.TypeFor[functions.Template]():
		return true
	}
	return false
}

// scalar reads a single value into v.
func (d *decoder) scalar(n *node, v reflect.Value, path string, tag reflect.StructTag) {
	t := v.Type()
	if n.kind != yaml.ScalarNode && isJQ(t) {
		key := path[max(strings.LastIndexByte(path, '.')+1, 0):]
		if n.kind == yaml.SequenceNode && t == reflect.TypeFor[functions.Template]() {
			d.at(n, -1, path, "want one text, with \\(jq) in it where it depends on the event, and not a list: each event has one %s", key)
			return
		}
		d.at(n, -1, path, "%s where jq is expected: quote it, or write it under `%s: |`", n.what(), key)
		return
	}
	if !d.scalarOnly(n, path, wanted(t)) {
		if n.replaced() && n.text == "" && !d.fault(path) {
			d.absent(v, tag, path)
		}
		return
	}
	if err := setText(v, n, tag); err != nil {
		offset := -1
		if s, ok := errors.AsType[*jq.SyntaxError](err); ok {
			offset = s.Offset
		}
		if n.replaced() {
			err = fmt.Errorf("with its ${…} replaced this is not %s", wanted(t))
		}
		d.at(n, offset, path, "%v", err)
		return
	}
	hide(v, n)
}

// hide keeps the values that n got from outside the file out of the messages of a run.
func hide(v reflect.Value, n *node) {
	if h, ok := v.Addr().Interface().(interface {
		Hide(mask func(string) string)
	}); ok && n.anyReplaced() {
		h.Hide(n.maskAll)
	}
}

// setText types the text of n. Numbers and booleans are written without quotes.
func setText(v reflect.Value, n *node, tag reflect.StructTag) error {
	quoted := n.style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 && !n.replaced()
	switch v.Kind() {
	case reflect.Bool, reflect.Float64, reflect.Float32, reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint64, reflect.Uint32:
		if quoted && !isText(v.Type()) {
			return fmt.Errorf("want %s, not text in quotes", wanted(v.Type()))
		}
	}
	return parseText(v, n.text, tag)
}

// parseText types text by v's type and checks what the tags say.
func parseText(v reflect.Value, text string, tag reflect.StructTag) error {
	if isText(v.Type()) {
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
			return err
		}
		return checkTags(v, text, tag)
	}
	var err error
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("want true or false, not %q", text)
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		var i int64
		i, err = strconv.ParseInt(text, 10, v.Type().Bits())
		v.SetInt(i)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		var u uint64
		u, err = strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(u)
	case reflect.Float32, reflect.Float64:
		var f float64
		f, err = strconv.ParseFloat(text, v.Type().Bits())
		v.SetFloat(f)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return parseText(v.Elem(), text, tag)
	default:
		return fmt.Errorf("want %s, not a single value", wanted(v.Type()))
	}
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%s is too large", text)
	}
	if err != nil {
		return fmt.Errorf("want %s, not %q", wanted(v.Type()), text)
	}
	return checkTags(v, text, tag)
}

// checkTags holds v to the tags enum, min and required.
func checkTags(v reflect.Value, text string, tag reflect.StructTag) error {
	if e := tag.Get("enum"); e != "" {
		known := strings.Split(e, "|")
		if text != "" && text == tag.Get("refuse") {
			return fmt.Errorf("%s: %s", text, tag.Get("why"))
		}
		if !slices.Contains(known, text) {
			return fmt.Errorf("want one of %s, not %q%s", strings.Join(known, ", "), text, suggestion(text, known))
		}
	}
	if tag.Get("required") == "true" && text == "" {
		return errors.New("is empty")
	}
	limit := tag.Get("min")
	if limit == "" {
		return nil
	}
	low := reflect.New(v.Type()).Elem()
	if err := parseText(low, limit, ""); err != nil {
		return fmt.Errorf("reading the least value %q: %w", limit, err)
	}
	if v.CanInt() && v.Int() < low.Int() {
		return fmt.Errorf("%s is less than %s", text, limit)
	}
	return nil
}

// suggestion names the nearest known name, "" where there is none.
func suggestion(name string, known []string) string {
	if k := nearest(name, known); k != "" {
		return ", did you mean " + k + "?"
	}
	return ""
}

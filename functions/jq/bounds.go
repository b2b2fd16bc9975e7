package jq

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"

	"github.com/itchyny/gojq"
)

const (
	// maxBuilt bounds the bytes of a string, and those of the elements of an array, that an expression
	// may build, so that a number in an event cannot fill the memory.
	maxBuilt = 64 << 20
	// elementBytes is what an element takes in an array.
	elementBytes = 16
	// maxPadding bounds the nulls before a new element of an array, as that of Event.Set.
	maxPadding = 10_000
	// maxNesting bounds how deep a value is nested that an expression spells as JSON.
	maxNesting = 10_000
)

func tooLarge(what string) error {
	return fmt.Errorf("%s would be larger than %d MiB", what, maxBuilt>>20)
}

// checks are the functions that guard calls. Those with one result return their input or an error.
var checks = []gojq.CompilerOption{
	gojq.WithFunction("__add", 2, 2, func(_ any, a []any) any { return checkedAdd(a[0], a[1]) }),
	gojq.WithFunction("__multiply", 2, 2, func(_ any, a []any) any { return checkedMultiply(a[0], a[1]) }),
	gojq.WithFunction("__built", 0, 0, func(v any, _ []any) any { return checked(v, built(v)) }),
	gojq.WithFunction("__spelled", 0, 0, func(v any, _ []any) any { return checked(v, spelled(v)) }),
	gojq.WithFunction("__summed", 0, 0, func(v any, _ []any) any { return checked(v, summed(v, 0)) }),
	gojq.WithFunction("__joined", 1, 1, func(v any, a []any) any { return checked(v, summed(v, size(a[0]))) }),
	gojq.WithFunction("__flattened", 0, 1, func(v any, a []any) any { return checked(v, flattened(v, a)) }),
	gojq.WithFunction("__transposed", 0, 0, func(v any, _ []any) any { return checked(v, transposed(v)) }),
	gojq.WithFunction("__halves", 1, 1, func(v any, a []any) any { return checkHalves(v, a[0]) }),
	gojq.WithFunction("__fits", 1, 1, func(v any, a []any) any { return checked(v, fits(v, a[0])) }),
	gojq.WithFunction("__match", 2, 2, func(v any, a []any) any { return matches(v, a[0], a[1]) }),
	gojq.WithFunction("__test", 2, 2, func(v any, a []any) any { return tests(v, a[0], a[1]) }),
	gojq.WithFunction("__gaps", 2, 2, func(v any, a []any) any { return gaps(v, a[0], a[1]) }),
	gojq.WithFunction("__glue", 2, 2, func(v any, a []any) any { return glue(v, a[0], a[1]) }),
}

func checked(v any, err error) any {
	if err != nil {
		return err
	}
	return v
}

// size is what v takes, without what its elements take.
func size(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []any:
		return len(v) * elementBytes
	default:
		return 0
	}
}

func built(v any) error {
	if size(v) > maxBuilt {
		return tooLarge("the result")
	}
	return nil
}

// native returns the function that runs src, over $a and $b and $c, in gojq.
func native(src string, vars ...string) func(v any, values ...any) any {
	q, err := gojq.Parse(src)
	if err != nil {
		panic(err)
	}
	code, err := gojq.Compile(q, gojq.WithVariables(vars))
	if err != nil {
		panic(err)
	}
	return func(v any, values ...any) any {
		out, _ := code.Run(v, values...).Next()
		return out
	}
}

var (
	nativeAdd      = native("$a + $b", "$a", "$b")
	nativeMultiply = native("$a * $b", "$a", "$b")
)

// small returns the number that gojq calculates with for v, if it is a machine integer.
func small(v any) (int, bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case json.Number:
		i, err := strconv.Atoi(string(v))
		return i, err == nil
	default:
		return 0, false
	}
}

// checkedAdd is +. The common cases are done here; whatever it means otherwise is gojq's to say.
func checkedAdd(l, r any) any {
	switch x := l.(type) {
	case string:
		if y, ok := r.(string); ok {
			if len(x)+len(y) > maxBuilt {
				return tooLarge("the sum")
			}
			return x + y
		}
	case []any:
		if y, ok := r.([]any); ok && len(y) > 0 && size(x)+size(y) > maxBuilt {
			return tooLarge("the sum")
		}
	case int, json.Number:
		i, ok := small(l)
		j, ok2 := small(r)
		if sum := i + j; ok && ok2 && (sum >= i) == (j >= 0) {
			return sum
		}
	}
	return nativeAdd(nil, l, r)
}

// checkedMultiply is *, which repeats strings.
func checkedMultiply(l, r any) any {
	s, ok := l.(string)
	n := r
	if !ok {
		s, ok = r.(string)
		n = l
	}
	if ok {
		if f, number := gojq.ToFloat64(n); number && f*float64(len(s)) > maxBuilt {
			return tooLarge("the repeated string")
		}
		return nativeMultiply(nil, l, r)
	}
	i, ok := small(l)
	j, ok2 := small(r)
	const half = 1 << 31
	if ok && ok2 && -half < i && i < half && -half < j && j < half {
		return i * j
	}
	x, ok := l.(float64)
	y, ok2 := r.(float64)
	if ok && ok2 {
		return x * y
	}
	return nativeMultiply(nil, l, r)
}

// elements are those of an array or an object, as gojq's add takes them.
func elements(v any, yield func(any) bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if !yield(e) {
				return
			}
		}
	case map[string]any:
		for _, e := range v {
			if !yield(e) {
				return
			}
		}
	}
}

// summed says whether the elements of v can be put together, with extra bytes before each.
func summed(v any, extra int) error {
	total := 0
	for e := range func(yield func(any) bool) { elements(v, yield) } {
		if total += size(e) + extra; total > maxBuilt {
			return tooLarge("the sum")
		}
	}
	return nil
}

func flattened(v any, args []any) error {
	depth := -1
	if len(args) > 0 {
		depth, _ = gojq.ToInt(args[0])
	}
	total := 0
	var count func(v any, depth, level int) error
	count = func(v any, depth, level int) error {
		if level > maxNesting {
			return errors.New("the value is nested too deep")
		}
		for e := range func(yield func(any) bool) { elements(v, yield) } {
			if list, ok := e.([]any); ok && depth != 0 {
				if err := count(list, depth-1, level+1); err != nil {
					return err
				}
			}
			if total += elementBytes; total > maxBuilt {
				return tooLarge("the list")
			}
		}
		return nil
	}
	return count(v, depth, 0)
}

func transposed(v any) error {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	longest := 0
	for _, e := range list {
		longest = max(longest, size(e))
	}
	if longest > 0 && len(list) > maxBuilt/longest {
		return tooLarge("the list")
	}
	return nil
}

// spelled says whether v, which may hold one value many times over, has a JSON text of bearable size.
func spelled(v any) error {
	switch v.(type) {
	case []any, map[string]any:
		w := weigher{}
		return w.add(v, 0)
	default:
		return built(v)
	}
}

// weigher adds up what values take as JSON.
type weigher struct {
	bytes int
}

func (w *weigher) add(v any, depth int) error {
	w.bytes++
	switch v := v.(type) {
	case string:
		w.bytes += len(v)
	case json.Number:
		w.bytes += len(v)
	case *big.Int:
		w.bytes += v.BitLen() / 3
	case []any:
		for _, e := range v {
			if err := w.add(e, depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, e := range v {
			w.bytes += len(k)
			if err := w.add(e, depth+1); err != nil {
				return err
			}
		}
	}
	switch {
	case depth > maxNesting:
		return errors.New("the result is nested too deep")
	case w.bytes > maxBuilt:
		return tooLarge("the result")
	}
	return nil
}

// fits says whether values can be set at paths of v without making an array much longer.
func fits(v, paths any) error {
	list, _ := paths.([]any)
	var grown map[string]int // the new lengths of arrays by their paths
	total := 0
	for _, p := range list {
		steps, _ := p.([]any)
		at := v
		for i, s := range steps {
			var next any
			switch c := at.(type) {
			case map[string]any:
				if name, ok := s.(string); ok {
					next = c[name]
				}
			case []any:
				if n, ok := gojq.ToInt(s); ok {
					if n < 0 {
						n += len(c)
					}
					if 0 <= n && n < len(c) {
						next = c[n]
						break
					}
				}
				if err := grow(&grown, &total, steps[:i], s, len(c)); err != nil {
					return err
				}
			case nil:
				if err := grow(&grown, &total, steps[:i], s, 0); err != nil {
					return err
				}
			}
			at = next
		}
	}
	return nil
}

// grow notes that the array at a path, which has length elements as far as v goes, gets one at index.
func grow(grown *map[string]int, total *int, path []any, index any, length int) error {
	n, ok := gojq.ToInt(index)
	if !ok {
		return nil
	}
	key := fmt.Sprint(path...)
	length = max(length, (*grown)[key])
	if n-length > maxPadding {
		return fmt.Errorf("element %d lies %d elements behind the end of its array, more than %d", n, n-length, maxPadding)
	}
	if n < length {
		return nil
	}
	if *total += (n + 1 - length) * elementBytes; *total > maxBuilt {
		return tooLarge("the value")
	}
	if *grown == nil {
		*grown = map[string]int{}
	}
	(*grown)[key] = n + 1
	return nil
}

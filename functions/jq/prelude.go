package jq

import (
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/itchyny/gojq"
)

// prelude has the built-ins of gojq that are written in jq, or take arguments, and need a guard. A name with
// __native in it means gojq's own, since it is defined before the name that it stands for is taken.
const prelude = `
def __assign(p; $x): __fits([path(p)]) | (p = $x);
def __modify(p; f): __fits([path(p)]) | (p |= f);
def __native_setpath(p; v): setpath(p; v);
def setpath(p; v): v as $v | p as $p | __fits([$p]) | __native_setpath($p; $v);
def pick(f): . as $v | reduce path(f) as $p (null; setpath($p; $v | getpath($p)));
def fromstream(f):
  foreach f as $pv (null;
    if .e then null end |
    $pv as [$p, $v] |
    if $pv | length == 2 then
      setpath(["v"] + $p; $v) | setpath(["e"]; $p | length == 0)
    else
      setpath(["e"]; $p | length == 1)
    end;
    if .e then .v else empty end);
def add(f): [f] | __summed | add;
def __native_join(s): join(s);
def join(s): s as $s | __joined($s) | __native_join($s);
def __native_flatten(d): flatten(d);
def flatten(d): d as $d | __flattened($d) | __native_flatten($d);
def match($re; $flags): __match($re; $flags)[];
def match($re): if $re | type == "array" then match($re[0]; $re[1]) else match($re; null) end;
def test($re; $flags): __test($re; $flags);
def test($re): if $re | type == "array" then test($re[0]; $re[1]) else test($re; null) end;
def capture($re; $flags): match($re; $flags) | .captures | _captures;
def capture($re): if $re | type == "array" then capture($re[0]; $re[1]) else capture($re; null) end;
def scan($re; $flags): match($re; $flags + "g") | if .captures == [] then .string else [.captures[].string] end;
def scan($re): scan($re; null);
def splits($re; $flags): __gaps($re; $flags + "g") | .list[].before, .after;
def splits($re): splits($re; null);
def split($re; $flags): [splits($re; $flags)];
def sub($re; str; $flags): . as $was | __gaps($re; $flags) |
  .after as $after | [.list[] | .before as $before | [.groups | str | $before + .]] | __glue($was; $after)[];
def sub($re; str): sub($re; str; null);
def gsub($re; str; $flags): sub($re; str; $flags + "g");
def gsub($re; str): sub($re; str; "g");
.`

// parsePrelude returns the definitions in their order and the names that each uses.
var parsePrelude = sync.OnceValues(func() ([]*gojq.FuncDef, error) {
	q, err := gojq.Parse(prelude)
	if err != nil {
		return nil, err
	}
	return q.FuncDefs, nil
})

func signature(name string, args int) string { return name + "/" + strconv.Itoa(args) }

// calls adds the functions that a syntax tree calls to those in used.
func calls(n any, used map[string]bool) {
	visit(reflect.ValueOf(n), func(n any) {
		if f, ok := n.(*gojq.Func); ok {
			used[signature(f.Name, len(f.Args))] = true
		}
	})
}

// preludeFor returns the definitions that q needs.
func preludeFor(q *gojq.Query) ([]*gojq.FuncDef, error) {
	defs, err := parsePrelude()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	calls(q, used)
	var out []*gojq.FuncDef
	for _, d := range slices.Backward(defs) { // a definition needs none that follow it
		if used[signature(d.Name, len(d.Args))] {
			calls(d.Body, used)
			out = append(out, d)
		}
	}
	slices.Reverse(out)
	return out, nil
}

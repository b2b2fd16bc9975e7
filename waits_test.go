package enricher_test

import (
	"go/ast"
	"path/filepath"
	"strings"
	"testing"
)

// realWaits has the functions of tests that let real time pass, and why that is no wait for something that should have
// happened by then. One that others call is named once, for all of them.
var realWaits = map[string]string{
	"functions/asynchttp/main_test.go pause":                                                       "does what a stream does for an event that asks to be called again later",
	"functions/jq/run_test.go waitFor":                                                             "looks at a condition again and again",
	"kafka/stream_test.go TestRebalancesLoseNothing":                                               "has a function that takes its time",
	"kafka/through_test.go slowly":                                                                 "is a function that takes its time",
	"kafka/transact_test.go TestReadersOfWhatIsCommittedSeeEachOutputOnce":                         "has a function that takes its time",
	"kafka/unwell_test.go TestATopicWithoutRightsIsNamedByTheStreamThroughoutAndMakesNoErrorEvent": "has a function that takes its time",
	"test/internal/job/api.go API.Rate":                                                            "counts answers over a time",
	"test/internal/job/api.go API.serve":                                                           "answers as slowly as it is told to",
	"test/kafka/cluster/cluster_test.go TestOneNodeKeepsWhatItAcknowledgedAcrossAKill":             "sees a while long that nothing comes through a proxy in front of a process",
	"test/kafka/harness_test.go pause":                                                             "is a part of what a suite does to workers and brokers",
	"test/mainjob/bulk_test.go takeTime":                                                           "is an API that takes 20 ms for an answer",
	"test/mainjob/resume_test.go TestWhatWasFinishedBehindAStuckEventIsNotCalledAgain":             "lets two commit intervals pass in which a process has nothing to commit",
}

// A test that waits in real time, outside a bubble of testing/synctest, is slow and fails on a busy machine. Sleeps and
// timers are looked for in each function that has no bubble, and calls of such functions of the same package; in methods
// only where no test of the package has a bubble that may call them. A timer that fails the test when it fires is a
// bound, not a wait.
func TestTestsWaitInVirtualTimeAlone(t *testing.T) {
	used := map[string]bool{}
	for _, p := range testPackages(t) {
		bubbles := false
		for _, f := range p {
			bubbles = bubbles || f.bubble
		}
		for changed := true; changed; { // until no more functions are found that call one that waits
			changed = false
			for name, f := range p {
				if f.waits || f.bubble {
					continue
				}
				for _, callee := range f.calls {
					if g := p[callee]; g != nil && g.waits && !g.test && realWaits[g.where] == "" {
						f.waits, changed = true, true
					}
				}
				p[name] = f
			}
		}
		for _, f := range p {
			if !f.waits || f.bubble || bubbles && !f.named {
				continue
			}
			used[f.where] = true
			if (f.test || !f.called(p)) && realWaits[f.where] == "" {
				t.Errorf("%s waits in real time: wait for a condition, or in a bubble of testing/synctest, or say in realWaits why it is no wait", f.where)
			}
		}
	}
	for where := range realWaits {
		if !used[where] {
			t.Errorf("%s waits in real time no more: take it out of realWaits", where)
		}
	}
}

// testFunction is a function of a test file.
type testFunction struct {
	where                      string // file and name
	test, bubble, waits, named bool
	calls                      []string // functions of its package
}

// called reports whether it is a plain function that others of its package call: those are looked at then.
func (f *testFunction) called(p map[string]*testFunction) bool {
	if !f.named {
		return false
	}
	_, name, _ := strings.Cut(f.where, " ")
	for _, g := range p {
		for _, callee := range g.calls {
			if callee == name {
				return true
			}
		}
	}
	return false
}

// testPackages returns the functions of the test files of each folder, and of most packages under test/, by name.
func testPackages(t *testing.T) map[string]map[string]*testFunction {
	t.Helper()
	packages := map[string]map[string]*testFunction{}
	for _, f := range goFiles(t) {
		path := filepath.ToSlash(f.path)
		if !strings.HasSuffix(path, "_test.go") && (!strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "test/sim/")) {
			continue // the simulator itself runs in bubbles alone
		}
		p := packages[filepath.Dir(path)]
		if p == nil {
			p = map[string]*testFunction{}
			packages[filepath.Dir(path)] = p
		}
		for _, d := range f.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				name = receiver(fn) + "." + name
			}
			p[name] = lookAt(fn, path+" "+name)
		}
	}
	for _, p := range packages { // what calls a function that makes a bubble has one
		for changed := true; changed; {
			changed = false
			for _, f := range p {
				for _, callee := range f.calls {
					if g := p[callee]; !f.bubble && g != nil && g.bubble && !g.test {
						f.bubble, changed = true, true
					}
				}
			}
		}
	}
	return packages
}

func receiver(fn *ast.FuncDecl) string {
	of := fn.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name
	}
	return "?"
}

// lookAt finds the waits and calls of a function.
func lookAt(fn *ast.FuncDecl, where string) *testFunction {
	f := &testFunction{where: where, named: fn.Recv == nil, test: fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test")}
	bounds := boundsOf(fn.Body)
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if name, ok := call.Fun.(*ast.Ident); ok {
			f.calls = append(f.calls, name.Name)
		}
		switch qualified(call) {
		case "synctest.Test":
			f.bubble = true
		case "time.Sleep", "time.After", "time.Tick", "time.NewTimer":
			f.waits = f.waits || !bounds[call]
		}
		return true
	})
	return f
}

// qualified returns package and name of what is called, where it is of a package.
func qualified(call *ast.CallExpr) string {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok {
			return x.Name + "." + sel.Sel.Name
		}
	}
	return ""
}

// boundsOf returns the calls that make a timer whose case of a select fails the test or returns an error.
func boundsOf(body *ast.BlockStmt) map[*ast.CallExpr]bool {
	bounds, made := map[*ast.CallExpr]bool{}, map[string]*ast.CallExpr{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			name, isName := n.Lhs[0].(*ast.Ident)
			if call, ok := n.Rhs[0].(*ast.CallExpr); ok && isName {
				made[name.Name] = call
			}
		case *ast.CommClause:
			if n.Comm == nil || !fails(n.Body) {
				return true
			}
			ast.Inspect(n.Comm, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					bounds[n] = true
				case *ast.Ident:
					if call := made[n.Name]; call != nil {
						bounds[call] = true
					}
				}
				return true
			})
		}
		return true
	})
	return bounds
}

// fails reports whether statements fail a test, or return an error that is made there.
func fails(body []ast.Stmt) bool {
	found := false
	for _, s := range body {
		ast.Inspect(s, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				switch name := qualified(call); {
				case name == "errors.New", name == "fmt.Errorf", strings.HasSuffix(name, ".Fatal"), strings.HasSuffix(name, ".Fatalf"),
					strings.HasSuffix(name, ".Error"), strings.HasSuffix(name, ".Errorf"):
					found = true
				}
				if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "panic" {
					found = true
				}
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(sel.Sel.Name, "Fatal") {
					found = true
				}
			}
			return true
		})
	}
	return found
}

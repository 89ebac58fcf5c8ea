// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/token"
	"go/types"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// deterministic are the packages whose pure cores are replayed: the same inputs must have the same
// outputs in the same order.
var deterministic = []string{"pleg", "cache", "exits", "embed/ledger", "events"}

// inAnyOrder are the loops whose effects have no order, for a reason that the test cannot see.
var inAnyOrder = map[string]string{
	"pleg visitAll":             "adds to a set",
	"pleg tickPeeks":            "forgets peeks, each pod's for itself",
	"pleg podOf":                "keeps the pod of the least UID",
	"pleg drop":                 "keeps the pod of the least UID",
	"cache Advance":             "wakes goroutines, which run in any order",
	"cache RenewDemand":         "keeps the latest demand of each pod",
	"embed/ledger failedToMake": "keeps the latest time",
	"embed/ledger apply":        "removes IDs, each for itself",
	"events pickForServer":      "keeps the first of a total order",
	"events closed":             "counts by kind",
	"events settleAll":          "puts each ticket in the place of its number",
	"events distribute":         "hands an Event to each watcher by itself",
	"exits stood":               "moves the time of each end by itself",
	"exits unreported":          "keeps ends that are sorted afterwards",
	"exits schedule":            "keeps the earliest time",
	"exits reported":            "writes to a map",
	"exits prune":               "fills each bucket by itself; of the fullest, the first by name goes",
	"exits asked":               "seals each tally by itself",
	"exits answered":            "answers each tally by itself",
}

// TestMapOrder fails when what a loop over a map does may depend on the order of the map, which Go
// chooses anew each time: three pods of one ID were told in an order that differed from run to run.
// In such a loop a statement may
//
//   - count, and keep a minimum, a maximum or a constant;
//   - write to and delete from maps;
//   - append to a slice that the same function sorts later;
//   - return constants, and look without changing anything (a condition, a call of another's method
//     in a condition or on the right of an assignment).
//
// Everything else takes the keys in order first (slices.Sorted(maps.Keys(m)), inOrder). The methods
// called check look, and report to a test.
func TestMapOrder(t *testing.T) {
	loops := 0
	excused := make(map[string]bool)
	for _, dir := range deterministic {
		before := loops
		for loop := range loopsOverMaps(t, dir) {
			loops++
			what := loop.judge.block(loop.body)
			if what == "" {
				continue
			}
			if _, reason := inAnyOrder[dir+" "+loop.function]; reason {
				excused[dir+" "+loop.function] = true
				continue
			}
			t.Errorf("%s/%s: %s ranges over a map, in no order, and its loop has %s", dir, loop.file, loop.function, what)
		}
		if loops == before {
			t.Errorf("%s: no loop over a map: has the package gone?", dir)
		}
	}
	for where := range inAnyOrder {
		if !excused[where] {
			t.Errorf("%s: nothing in its loops over maps needs the reason given here", where)
		}
	}
	if loops < 20 {
		t.Fatalf("%d loops over maps: the test has lost its object", loops)
	}
}

// mapLoop is a loop over a map.
type mapLoop struct {
	file, function string
	body           *ast.BlockStmt
	judge          orderless
}

// loopsOverMaps yields the loops over maps in the functions of a package.
func loopsOverMaps(t *testing.T, dir string) iter.Seq[mapLoop] {
	files, info := typed(t, filepath.Join(root, dir))
	return func(yield func(mapLoop) bool) {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			for f := range judged(files[name]) {
				o := orderless{info: info, within: f.Body}
				for loop := range o.overMaps() {
					if !yield(mapLoop{file: name, function: f.Name.Name, body: loop.Body, judge: o}) {
						return
					}
				}
			}
		}
	}
}

// judged yields the functions of a file whose loops are judged.
func judged(file *ast.File) iter.Seq[*ast.FuncDecl] {
	return func(yield func(*ast.FuncDecl) bool) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || strings.HasPrefix(f.Name.Name, "check") {
				continue
			}
			if !yield(f) {
				return
			}
		}
	}
}

// orderless judges the loops over maps of a function.
type orderless struct {
	info   *types.Info
	within *ast.BlockStmt
}

// overMaps yields the loops over maps, inner ones too.
func (o *orderless) overMaps() iter.Seq[*ast.RangeStmt] {
	return func(yield func(*ast.RangeStmt) bool) {
		more := true
		ast.Inspect(o.within, func(n ast.Node) bool {
			loop, ok := n.(*ast.RangeStmt)
			if !more || !ok || !o.overMap(loop) {
				return more
			}
			more = yield(loop)
			return more
		})
	}
}

func (o *orderless) overMap(loop *ast.RangeStmt) bool {
	at, ok := o.info.Types[loop.X]
	if !ok {
		return false
	}
	_, isMap := at.Type.Underlying().(*types.Map)
	if call, ok := loop.X.(*ast.CallExpr); ok && !isMap { // maps.Keys, maps.All, maps.Values
		isMap = strings.HasPrefix(types.ExprString(call.Fun), "maps.")
	}
	return isMap
}

// block returns the first statement whose effect may depend on the order; empty if there is none.
func (o *orderless) block(b *ast.BlockStmt) string {
	for _, s := range b.List {
		if what := o.statement(s); what != "" {
			return what
		}
	}
	return ""
}

func (o *orderless) statement(s ast.Stmt) string {
	switch s := s.(type) {
	case nil, *ast.IncDecStmt, *ast.EmptyStmt, *ast.DeclStmt, *ast.BranchStmt:
		return ""
	case *ast.BlockStmt:
		return o.block(s)
	case *ast.IfStmt:
		return first(o.statement(s.Init), o.block(s.Body), o.statement(s.Else))
	case *ast.SwitchStmt:
		return first(o.statement(s.Init), o.block(s.Body))
	case *ast.CaseClause:
		return o.block(&ast.BlockStmt{List: s.Body})
	case *ast.RangeStmt:
		return o.block(s.Body)
	case *ast.ForStmt:
		return o.block(s.Body)
	case *ast.ReturnStmt:
		for _, e := range s.Results {
			if !o.constant(e) {
				return "a return of " + types.ExprString(e)
			}
		}
		return ""
	case *ast.AssignStmt:
		return o.assignment(s)
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if ok && slices.Contains([]string{"delete", "clear"}, types.ExprString(call.Fun)) {
			return ""
		}
	}
	return "a statement with an effect (" + o.text(s) + ")"
}

func (o *orderless) assignment(s *ast.AssignStmt) string {
	if s.Tok != token.ASSIGN && s.Tok != token.DEFINE {
		return "" // +=, |= and the like
	}
	for i, left := range s.Lhs {
		right := s.Rhs[min(i, len(s.Rhs)-1)]
		switch {
		case s.Tok == token.DEFINE, o.ownOrMap(left), o.constant(right), o.extreme(left, right):
		case o.appends(left, right) && o.sortedLater(left):
		default:
			return "an assignment to " + types.ExprString(left)
		}
	}
	return ""
}

// ownOrMap reports whether an assignment is to the element of a map, to nothing, or to a variable
// of the loop.
func (o *orderless) ownOrMap(left ast.Expr) bool {
	switch left := left.(type) {
	case *ast.Ident:
		return left.Name == "_"
	case *ast.IndexExpr:
		of := o.info.Types[left.X].Type
		if of == nil {
			return false // of a package that was not read
		}
		_, isMap := of.Underlying().(*types.Map)
		return isMap
	}
	return false
}

func (o *orderless) constant(e ast.Expr) bool {
	if literal, ok := e.(*ast.CompositeLit); ok {
		return !slices.ContainsFunc(literal.Elts, func(e ast.Expr) bool {
			pair, keyed := e.(*ast.KeyValueExpr)
			return !keyed || !o.constant(pair.Value)
		})
	}
	at, ok := o.info.Types[e]
	return ok && (at.Value != nil || at.IsNil())
}

// extreme reports whether a variable keeps a minimum, a maximum, whether any or all are so, or the
// constant that it first got.
func (o *orderless) extreme(left, right ast.Expr) bool {
	name := types.ExprString(left)
	own := func(e ast.Expr) bool { return types.ExprString(e) == name }
	switch right := right.(type) {
	case *ast.CallExpr:
		switch types.ExprString(right.Fun) {
		case "min", "max":
			return slices.ContainsFunc(right.Args, own)
		case "cmp.Or":
			return len(right.Args) == 2 && own(right.Args[0]) && o.constant(right.Args[1])
		}
	case *ast.BinaryExpr:
		for e := ast.Expr(right); ; {
			b, ok := e.(*ast.BinaryExpr)
			if !ok || b.Op != right.Op {
				return own(e) && (right.Op == token.LOR || right.Op == token.LAND)
			}
			e = b.X
		}
	}
	return false
}

func (o *orderless) appends(left, right ast.Expr) bool {
	call, ok := right.(*ast.CallExpr)
	return ok && types.ExprString(call.Fun) == "append" && types.ExprString(call.Args[0]) == types.ExprString(left)
}

// sortedLater reports whether the function sorts a slice.
func (o *orderless) sortedLater(slice ast.Expr) (yes bool) {
	ast.Inspect(o.within, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		sorts := strings.HasPrefix(types.ExprString(call.Fun), "slices.Sort")
		yes = yes || sorts && types.ExprString(call.Args[0]) == types.ExprString(slice)
		return true
	})
	return yes
}

func (o *orderless) text(s ast.Stmt) string {
	if e, ok := s.(*ast.ExprStmt); ok {
		return types.ExprString(e.X)
	}
	return "a statement that this test does not know"
}

func first(of ...string) string {
	for _, s := range of {
		if s != "" {
			return s
		}
	}
	return ""
}

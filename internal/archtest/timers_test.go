// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"slices"
	"testing"
)

// bubbled are the folders, with those below, whose code runs in bubbles of virtual time.
var bubbled = []string{
	"cache",
	"cri",
	"embed",
	"events",
	"exits",
	"pleg",
	"internal/criproxy",
	"internal/doctor",
	"internal/simulate",
}

// TestTimersLieAhead wants no timer set for now or earlier: 0, or a difference of times without
// max(1, …). In a bubble such a timer is fired by the goroutine that sets it, and two that do so at
// once use one state of the race detector: Go 1.26 crashes then, or stands still for ever.
func TestTimersLieAhead(t *testing.T) {
	files := 0
	eachGoFile(t, bubbled, func(_ string, f parsed) {
		files++
		for _, at := range f.immediate() {
			t.Errorf("%s: a timer for now or earlier: see TestTimersLieAhead", at)
		}
	})
	if files < 100 {
		t.Errorf("%d files found: is the test in its place?", files)
	}
}

// TestImmediateTimersAreFound holds the rule to what it must name, and to what is fine.
func TestImmediateTimersAreFound(t *testing.T) {
	for body, want := range map[string]int{
		"time.NewTimer(0)":                      1,
		"<-time.After(0)":                       1,
		"time.AfterFunc(0, f)":                  1,
		"timer.Reset(0)":                        1,
		"timer.Reset(time.Until(at))":           1,
		"time.AfterFunc(at.Sub(now), f)":        1,
		"<-time.After(max(0, at.Sub(now)))":     1,
		"<-time.After(max(1, at.Sub(now)))":     0,
		"timer.Reset(max(1, time.Until(at)))":   0,
		"time.NewTimer(time.Hour)":              0,
		"time.NewTimer(d)":                      0,
		"time.NewTimer(max(d, time.Second)/10)": 0,
		"context.AfterFunc(ctx, f)":             0,
		"buffer.Reset()":                        0,
	} {
		f := parse(t, "x.go", []byte("package x\nfunc f() { "+body+" }\n"))
		if found := f.immediate(); len(found) != want {
			t.Errorf("%s: found %q, want %d", body, found, want)
		}
	}
}

// immediate returns the places where a timer may be set for now or earlier.
func (f parsed) immediate() (found []string) {
	sets := []string{"NewTimer", "After", "AfterFunc", "Reset"}
	ast.Inspect(f.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		if set, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(sets, set.Sel.Name) &&
			mayBePast(call.Args[0]) {
			found = append(found, f.set.Position(call.Pos()).String())
		}
		return true
	})
	return found
}

// mayBePast reports whether a duration is 0, or a difference of times without a least value.
func mayBePast(d ast.Expr) bool {
	switch d := d.(type) {
	case *ast.BasicLit:
		return d.Value == "0"
	case *ast.CallExpr:
		switch of := d.Fun.(type) {
		case *ast.SelectorExpr:
			return slices.Contains([]string{"Until", "Sub", "sub"}, of.Sel.Name)
		case *ast.Ident:
			return of.Name == "max" && mayBePast(d.Args[0])
		}
	}
	return false
}

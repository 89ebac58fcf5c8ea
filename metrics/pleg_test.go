// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
)

var _ pleg.Metrics = (*metrics.Metrics)(nil)

// constants reads every string constant of a Go file whose name begins with prefix.
func constants(t *testing.T, file, prefix string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, decl := range parsed.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			value := spec.(*ast.ValueSpec)
			for i, name := range value.Names {
				if !strings.HasPrefix(name.Name, prefix) {
					continue
				}
				literal, ok := value.Values[i].(*ast.BasicLit)
				if !ok {
					t.Fatalf("%s: the value of %s is not a literal", file, name.Name)
				}
				s, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[name.Name] = s
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no constants named %s…", file, prefix)
	}
	return found
}

// TestEveryMetricOfPLEGIsServed reports each of pleg's names as a counter and as a histogram: exactly one of them must show.
func TestEveryMetricOfPLEGIsServed(t *testing.T) {
	for constant, name := range constants(t, "../pleg/metrics.go", "Metric") {
		t.Run(constant, func(t *testing.T) {
			m, reg := newMetrics(t, metrics.Options{})
			before := gather(t, reg)
			m.Add(name, 1)
			counted := gather(t, reg)
			m.Observe(name, time.Second)
			observed := gather(t, reg)
			asCounter, asHistogram := !cmp.Equal(before, counted), !cmp.Equal(counted, observed)
			if asCounter == asHistogram {
				t.Errorf("pleg.%s = %q is served as a counter: %t, as a histogram: %t; want one of them", constant, name, asCounter, asHistogram)
			}
		})
	}
}

func TestEveryGaugeOfPLEGIsServed(t *testing.T) {
	for constant, name := range constants(t, "../pleg/metrics.go", "Gauge") {
		t.Run(constant, func(t *testing.T) {
			m, reg := newMetrics(t, metrics.Options{})
			before := gather(t, reg)
			m.SetGauges(func(yield func(string, float64)) { yield(name, 1) })
			if cmp.Equal(before, gather(t, reg)) {
				t.Errorf("pleg.%s = %q is not served", constant, name)
			}
		})
	}
}

// TestEveryCountOfTheClientIsServed yields each of the client's names, with a method where it wants one.
func TestEveryCountOfTheClientIsServed(t *testing.T) {
	for constant, name := range constants(t, "../cri/stats.go", "count") {
		t.Run(constant, func(t *testing.T) {
			m, reg := newMetrics(t, metrics.Options{})
			before := gather(t, reg)
			labelled := strings.HasSuffix(name, "/")
			if labelled {
				name += "Version"
			}
			m.SetGauges(nil, func(yield func(string, float64)) { yield(name, 7) })
			after := gather(t, reg)
			found := 0
			for key, v := range after {
				if _, ok := before[key]; ok {
					continue
				}
				found++
				if v != 7 || labelled != strings.HasSuffix(key, "{Version}") {
					t.Errorf("%s is served as %s = %v", name, key, v)
				}
			}
			if found != 1 {
				t.Errorf("cri.%s = %q shows in %d series, want 1", constant, name, found)
			}
		})
	}
}

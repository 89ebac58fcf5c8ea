// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// fields walks the JSON of a type and yields the path and the type of each field as
// docs/pleg-bench.md writes them.
func fields(typ reflect.Type, path string, yield func(path, typ string)) {
	switch typ {
	case reflect.TypeFor[bench.LatencyResult]():
		yield(path, "quantiles")
		return
	case reflect.TypeFor[*bench.ComparisonResult]():
		yield(path, "object")
		return
	}
	switch typ.Kind() {
	case reflect.Struct:
		for f := range typ.Fields() {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case tag == "-":
			case f.Anonymous:
				fields(f.Type, path, yield)
			case path == "":
				fields(f.Type, tag, yield)
			default:
				fields(f.Type, path+"."+tag, yield)
			}
		}
	case reflect.Pointer:
		if typ.Elem().Kind() == reflect.Struct {
			fields(typ.Elem(), path, yield)
			return
		}
		fields(typ.Elem(), path, func(path, typ string) { yield(path, typ+" or null") })
	case reflect.Slice:
		fields(typ.Elem(), path, func(path, typ string) { yield(path, "[]"+typ) })
	case reflect.Map:
		fields(typ.Elem(), path, func(path, typ string) { yield(path, "map of "+typ) })
	case reflect.Int, reflect.Int64, reflect.Uint64:
		yield(path, "int")
	case reflect.Float64:
		yield(path, "float")
	default:
		yield(path, typ.Kind().String())
	}
}

// TestJSONIsDocumented compares the fields of a result with the table in docs/pleg-bench.md: the
// documentation is the golden file.
func TestJSONIsDocumented(t *testing.T) {
	t.Parallel()
	page := testkit.Must(os.ReadFile("../../docs/pleg-bench.md"))(t)
	documented := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| ([^|]+) \\| [^|]+ \\|$").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = row[2]
	}
	// The commands' table has the same form.
	for _, command := range []string{"run", "stress", "watch", "fake"} {
		delete(documented, command)
	}
	real := make(map[string]string)
	fields(reflect.TypeFor[bench.Result](), "", func(path, typ string) { real[path] = typ })
	if diff := cmp.Diff(real, documented); diff != "" {
		t.Errorf("docs/pleg-bench.md differs from the JSON (-JSON +docs):\n%s", diff)
	}
}

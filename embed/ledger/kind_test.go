// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"reflect"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fieldsOf returns the numbers of the fields of a CRI message, without its generator's own.
func fieldsOf(message reflect.Type) (numbers []int) {
	for i := range message.NumField() {
		f := message.Field(i)
		if f.IsExported() && !strings.HasPrefix(f.Name, "XXX_") {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// visit calls set for each field of a CRI message, in depth, after making the messages between.
// name is the field's, with a dot behind that of each message around it.
func visit(m reflect.Value, name string, set func(field reflect.Value, name string)) {
	for _, i := range fieldsOf(m.Type()) {
		f := m.Field(i)
		its := name + m.Type().Field(i).Name
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
			visit(f.Elem(), its+".", set)
			continue
		}
		set(f, its)
	}
}

// fill gives a field a value that is not its zero value.
func fill(t *testing.T, f reflect.Value, name string) {
	t.Helper()
	switch {
	case f.Kind() == reflect.String:
		f.SetString("a " + name)
	case f.CanInt():
		f.SetInt(1)
	case f.CanUint():
		f.SetUint(1)
	case f.Type() == reflect.TypeFor[map[string]string]():
		f.Set(reflect.ValueOf(map[string]string{"key": name}))
	default:
		t.Fatalf("%s is a %v: teach the test to fill it", name, f.Type())
	}
}

// filled returns a message with a value in each field, and the names of the fields.
func filled[M any](t *testing.T) (m *M, names []string) {
	m = new(M)
	visit(reflect.ValueOf(m).Elem(), "", func(f reflect.Value, name string) {
		fill(t, f, name)
		names = append(names, name)
	})
	return m, names
}

// comparesEachField wants a comparison to see a difference in each single field but the ID and the
// state.
func comparesEachField[M any](t *testing.T, same func(a, b *M) bool) {
	whole, names := filled[M](t)
	again, _ := filled[M](t)
	if !same(whole, again) {
		t.Error("equal messages differ")
	}
	for _, other := range names {
		differs := new(M)
		visit(reflect.ValueOf(differs).Elem(), "", func(f reflect.Value, name string) {
			if name != other {
				fill(t, f, name)
			}
		})
		if same(whole, differs) != (other == "Id" || other == "State") {
			t.Errorf("another %s: a difference is seen: %v", other, !same(whole, differs))
		}
	}
}

// TestEachFieldIsCompared: a list corrects whatever it shows. A later CRI with another field fails
// here.
func TestEachFieldIsCompared(t *testing.T) {
	comparesEachField(t, sandboxKind.same)
	comparesEachField(t, containerKind.same)
}

// statusOf returns the status with the fields of a list's element, but one that no status has.
func statusOf[S, E any](t *testing.T, element *E, but string) *S {
	status := new(S)
	from := reflect.ValueOf(element).Elem()
	for _, i := range fieldsOf(from.Type()) {
		name := from.Type().Field(i).Name
		to := reflect.ValueOf(status).Elem().FieldByName(name)
		switch {
		case name == but:
		case !to.IsValid():
			t.Errorf("lists show %s and statuses do not: a list must read what an own call has made", name)
		default:
			to.Set(from.Field(i))
		}
	}
	return status
}

// TestAnElementHasEachField: an element made from a status has all that a list shows.
func TestAnElementHasEachField(t *testing.T) {
	sandbox, _ := filled[runtimeapi.PodSandbox](t)
	container, _ := filled[runtimeapi.Container](t)
	if got := sandboxOf(sandbox.Id, statusOf[runtimeapi.PodSandboxStatus](t, sandbox, "")); !reflect.DeepEqual(got, sandbox) {
		t.Errorf("of a sandbox's status: %v, want %v", got, sandbox)
	}
	status := statusOf[runtimeapi.ContainerStatus](t, container, "PodSandboxId")
	if got := containerOf(container.Id, container.PodSandboxId, status); !reflect.DeepEqual(got, container) {
		t.Errorf("of a container's status: %v, want %v", got, container)
	}
}

// TestEachFieldOfAFilterIsKnown: a filter that the ledger does not know would filter nothing.
func TestEachFieldOfAFilterIsKnown(t *testing.T) {
	for filter, known := range map[reflect.Type]int{
		reflect.TypeFor[runtimeapi.PodSandboxFilter](): 3,
		reflect.TypeFor[runtimeapi.ContainerFilter]():  4,
	} {
		if n := len(fieldsOf(filter)); n != known {
			t.Errorf("%v has %d fields, and the ledger knows %d: refuse lists with the others", filter, n, known)
		}
	}
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// output is a long string of a caller, such as what a probe has written.
type output string

// words returns n different parts of an output.
func (o *output) words(n int) (all []string) {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "word-%02d", i)
	}
	text.WriteString(strings.Repeat("x", 1<<10))
	*o = output(text.String())
	for i := range n {
		all = append(all, string(*o)[7*i:7*i+7])
	}
	return all
}

// holds returns the paths to the strings of a value that lie in the memory of the output. Pointers
// are not followed.
func (o *output) holds(v reflect.Value, path string) (found []string) {
	switch v.Kind() {
	case reflect.String:
		first := uintptr(unsafe.Pointer(unsafe.StringData(string(*o))))
		at := uintptr(unsafe.Pointer(unsafe.StringData(v.String())))
		if v.Len() > 0 && at >= first && at < first+uintptr(len(*o)) {
			found = append(found, path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			found = append(found, o.holds(v.Field(i), path+"."+v.Type().Field(i).Name)...)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			found = append(found, o.holds(key, path+".key")...)
			found = append(found, o.holds(v.MapIndex(key), path+"["+key.String()+"]")...)
		}
	}
	return found
}

// TestSeriesOwnTheirStrings: a series that waits for its first write holds no memory of the
// caller's strings, of which its own may be small parts.
func TestSeriesOwnTheirStrings(t *testing.T) {
	var out output
	w := out.words(18)
	ref := func(w []string) *corev1.ObjectReference {
		return &corev1.ObjectReference{
			Kind: w[0], APIVersion: w[1], Namespace: w[2], Name: w[3],
			UID: types.UID(w[4]), ResourceVersion: w[5], FieldPath: w[6],
		}
	}
	emit := map[string]func(r *rig, note string){
		"newer": func(r *rig, note string) {
			annotations := map[string]string{w[14]: w[15]}
			r.rec.AnnotatedEventf(ref(w), ref(w[7:]), annotations, "Normal", w[17], note[:7], note, []any(nil)...)
		},
		"older": func(r *rig, note string) {
			r.NewLegacyRecorder(nil, ofKubelet).Event(ref(w), "Normal", w[17], note)
		},
	}
	for name, one := range emit {
		for _, burst := range []int{25, 1} { // with 1 the second is combined
			t.Run(fmt.Sprint(name, ", burst ", burst), func(t *testing.T) {
				bubble(t, func(o *Options) { o.Burst = burst }, func(t *testing.T, r *rig) {
					one(r, w[16])
					one(r, string(out)[:500])
					r.mu.Lock()
					defer r.mu.Unlock()
					if n := len(r.core.table.byKey); n != 2 {
						t.Errorf("%d series, want 2", n)
					}
					for _, s := range r.core.table.byKey {
						if held := out.holds(reflect.ValueOf(*s), "series"); len(held) > 0 {
							t.Errorf("the caller's memory is held by %s", held)
						}
					}
				})
			})
		}
	}
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"reflect"
	"time"
	"unsafe"
)

// copied returns a copy of v that shares nothing with it that may change: pointers, maps and slices
// are copied with all that hangs on them, whoever refers to a thing twice refers to its copy twice.
// Errors, functions and times are shared.
func copied[T any](v T) T {
	k := copier{done: map[unsafe.Pointer]reflect.Value{}}
	from := reflect.New(reflect.TypeFor[T]()).Elem()
	from.Set(reflect.ValueOf(&v).Elem())
	to := reflect.New(from.Type()).Elem()
	k.copy(to, from)
	return to.Interface().(T)
}

type copier struct {
	done map[unsafe.Pointer]reflect.Value
}

// open returns the same value with what is not exported open to be read and set.
func open(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// of returns a copy of a value that has no address.
func (k *copier) of(v reflect.Value) reflect.Value {
	from, to := reflect.New(v.Type()).Elem(), reflect.New(v.Type()).Elem()
	from.Set(v)
	k.copy(to, from)
	return to
}

func (k *copier) copy(to, from reflect.Value) {
	to, from = open(to), open(from)
	switch from.Kind() {
	case reflect.Pointer:
		if from.IsNil() {
			return
		}
		p, ok := k.done[from.UnsafePointer()]
		if !ok {
			p = reflect.New(from.Type().Elem())
			k.done[from.UnsafePointer()] = p
			k.copy(p.Elem(), from.Elem())
		}
		to.Set(p)
	case reflect.Struct:
		if from.Type() == reflect.TypeFor[time.Time]() {
			to.Set(from)
			return
		}
		for i := range from.NumField() {
			k.copy(to.Field(i), from.Field(i))
		}
	case reflect.Array:
		for i := range from.Len() {
			k.copy(to.Index(i), from.Index(i))
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
			for i := range from.Len() {
				k.copy(to.Index(i), from.Index(i))
			}
		}
	case reflect.Map:
		if !from.IsNil() {
			to.Set(reflect.MakeMap(from.Type()))
			for it := from.MapRange(); it.Next(); {
				to.SetMapIndex(k.of(it.Key()), k.of(it.Value()))
			}
		}
	case reflect.Chan, reflect.UnsafePointer:
		panic(fmt.Sprintf("%v cannot be copied", from.Type()))
	default: // numbers, strings; errors and functions, which nobody changes
		to.Set(from)
	}
}

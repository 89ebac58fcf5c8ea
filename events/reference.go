// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds resolves objects to references without garbage. kinds caches the kind of each Go type known
// to the scheme: a scheme lookup allocates. Safe for concurrent use.
type kinds struct {
	scheme *runtime.Scheme
	seen   sync.Map // reflect.Type → *schema.GroupVersionKind
}

var errNilObject = errors.New("the object is nil")

// refer identifies the object in out and returns its resourceVersion. A nil pointer inside of the
// interface is an error, not a panic.
func (k *kinds) refer(obj runtime.Object, out *refKey) (resourceVersion string, err error) {
	if obj == nil {
		return "", errNilObject
	}
	if ref, ok := obj.(*corev1.ObjectReference); ok {
		if ref == nil {
			return "", errNilObject
		}
		out.group, out.version = splitVersion(ref.APIVersion)
		out.kind, out.namespace, out.name, out.uid, out.fieldPath = ref.Kind, ref.Namespace, ref.Name, string(ref.UID), ref.FieldPath
		out.bound()
		return ref.ResourceVersion, nil
	}
	switch v := reflect.ValueOf(obj); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		if v.IsNil() {
			return "", errNilObject
		}
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		known, err := k.lookup(obj)
		if err != nil {
			return "", err
		}
		gvk = *known
	}
	out.kind, out.group, out.version = gvk.Kind, gvk.Group, gvk.Version
	var common metav1.Common
	if m, err := meta.Accessor(obj); err == nil {
		out.namespace, out.name, out.uid = m.GetNamespace(), m.GetName(), string(m.GetUID())
		common = m
	} else if common, err = meta.CommonAccessor(obj); err != nil { // a list has a version, but no name
		return "", fmt.Errorf("%T has no metadata: %w", obj, err)
	}
	out.bound()
	return common.GetResourceVersion(), nil
}

func (k *kinds) lookup(obj runtime.Object) (*schema.GroupVersionKind, error) {
	t := reflect.TypeOf(obj)
	if v, ok := k.seen.Load(t); ok {
		return v.(*schema.GroupVersionKind), nil
	}
	if k.scheme == nil {
		return nil, fmt.Errorf("%T does not say its kind and the recorder has no scheme to look it up", obj)
	}
	all, _, err := k.scheme.ObjectKinds(obj)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 || all[0].Empty() {
		return nil, fmt.Errorf("the scheme knows no kind for %T", obj)
	}
	k.seen.Store(t, &all[0])
	return &all[0], nil
}

// splitVersion is schema.ParseGroupVersion for arbitrary input.
func splitVersion(apiVersion string) (group, version string) {
	if before, after, ok := strings.Cut(apiVersion, "/"); ok {
		return before, after
	}
	return "", apiVersion
}

// bound limits the size of a key; existing objects pass unchanged.
func (r *refKey) bound() {
	for _, f := range [...]*string{&r.kind, &r.group, &r.version, &r.namespace, &r.name, &r.uid, &r.fieldPath} {
		if len(*f) > maxRefField {
			*f = cut(*f, maxRefField)
		}
	}
}

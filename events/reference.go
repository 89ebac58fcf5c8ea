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

// kinds resolves objects to references without garbage. It remembers the kind of each Go type that the scheme knows, because asking the
// scheme allocates. Safe for concurrent use.
type kinds struct {
	scheme *runtime.Scheme
	seen   sync.Map // reflect.Type → *schema.GroupVersionKind
}

var errNilObject = errors.New("the object is nil")

// refer identifies the object and gives its resourceVersion. A nil pointer inside of the interface is an error, not a panic.
func (k *kinds) refer(obj runtime.Object) (refKey, string, error) {
	if obj == nil {
		return refKey{}, "", errNilObject
	}
	if ref, ok := obj.(*corev1.ObjectReference); ok {
		if ref == nil {
			return refKey{}, "", errNilObject
		}
		group, version := splitVersion(ref.APIVersion)
		return tidy(refKey{ref.Kind, group, version, ref.Namespace, ref.Name, string(ref.UID), ref.FieldPath}), ref.ResourceVersion, nil
	}
	switch v := reflect.ValueOf(obj); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		if v.IsNil() {
			return refKey{}, "", errNilObject
		}
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		known, err := k.lookup(obj)
		if err != nil {
			return refKey{}, "", err
		}
		gvk = *known
	}
	var common metav1.Common
	ref := refKey{kind: gvk.Kind, group: gvk.Group, version: gvk.Version}
	if m, err := meta.Accessor(obj); err == nil {
		ref.namespace, ref.name, ref.uid = m.GetNamespace(), m.GetName(), string(m.GetUID())
		common = m
	} else if common, err = meta.CommonAccessor(obj); err != nil { // a list has a version, but no name
		return refKey{}, "", fmt.Errorf("%T has no metadata: %w", obj, err)
	}
	return tidy(ref), common.GetResourceVersion(), nil
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

// splitVersion is schema.ParseGroupVersion for input that may be anything.
func splitVersion(apiVersion string) (group, version string) {
	if i := strings.IndexByte(apiVersion, '/'); i >= 0 {
		return apiVersion[:i], apiVersion[i+1:]
	}
	return "", apiVersion
}

// tidy bounds what a reference may hold; objects that exist pass unchanged.
func tidy(r refKey) refKey {
	for _, f := range [...]*string{&r.kind, &r.group, &r.version, &r.namespace, &r.name, &r.uid, &r.fieldPath} {
		*f = cut(*f, maxRefField)
	}
	return r
}

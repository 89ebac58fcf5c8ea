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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds resolves objects to references without garbage. kinds caches the kind of each Go type known
// to the scheme: a scheme lookup allocates. Safe for concurrent use.
type kinds struct {
	scheme *runtime.Scheme
	seen   sync.Map // reflect.Type → schema.GroupVersionKind
}

var errNilObject = errors.New("the object is nil")

// refer identifies the object in out and returns its resourceVersion. A nil pointer inside of the
// interface is an error, not a panic.
func (k *kinds) refer(obj runtime.Object, out *refKey) (resourceVersion string, err error) {
	if v := reflect.ValueOf(obj); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return "", errNilObject
	}
	defer out.bound()
	if ref, ok := obj.(*corev1.ObjectReference); ok {
		*out = refKeyOf(ref)
		return ref.ResourceVersion, nil
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		if gvk, err = k.lookup(obj); err != nil {
			return "", err
		}
	}
	out.kind, out.group, out.version = gvk.Kind, gvk.Group, gvk.Version
	if m, err := meta.Accessor(obj); err == nil {
		out.namespace, out.name, out.uid = m.GetNamespace(), m.GetName(), string(m.GetUID())
		return m.GetResourceVersion(), nil
	}
	common, err := meta.CommonAccessor(obj) // a list has a version, but no name
	if err != nil {
		return "", fmt.Errorf("%T has no metadata: %w", obj, err)
	}
	return common.GetResourceVersion(), nil
}

func (k *kinds) lookup(obj runtime.Object) (schema.GroupVersionKind, error) {
	t := reflect.TypeOf(obj)
	if v, ok := k.seen.Load(t); ok {
		return v.(schema.GroupVersionKind), nil
	}
	if k.scheme == nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%T does not say its kind and the recorder has no scheme to look it up", obj)
	}
	all, _, err := k.scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	k.seen.Store(t, all[0])
	return all[0], nil
}

// refKeyOf returns the key of a reference with any content.
func refKeyOf(o *corev1.ObjectReference) refKey {
	group, version, ok := strings.Cut(o.APIVersion, "/")
	if !ok {
		group, version = "", o.APIVersion
	}
	return refKey{o.Kind, group, version, o.Namespace, o.Name, string(o.UID), o.FieldPath}
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of the API server, in bytes.
const (
	maxNote     = 1024
	maxWord     = 128 // reason, action, reportingInstance
	maxRefField = 1024
	// maxAnnotations is below the server's limit of 256 KiB: a full table of such events must still
	// fit in memory.
	maxAnnotations = 8 << 10
)

// cut shortens s to at most limit bytes of valid UTF-8 without splitting a character. A valid
// string is returned unchanged, without allocation.
func cut(s string, limit int) string {
	if len(s) > limit {
		end := limit
		for end > max(limit-utf8.UTFMax, 0) && !utf8.RuneStart(s[end]) {
			end--
		}
		s = strings.Clone(s[:end]) // a small part does not hold the memory of the whole
	}
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "?") // never longer
}

// refKey identifies a referenced object. The resourceVersion is omitted: each write of the object
// changes the version and would begin a new series.
type refKey struct {
	kind, group, version, namespace, name, uid, fieldPath string
}

// bound limits the size of a key; existing objects pass unchanged.
func (r *refKey) bound() {
	for _, f := range [...]*string{&r.kind, &r.group, &r.version, &r.namespace, &r.name, &r.uid, &r.fieldPath} {
		if len(*f) > maxRefField {
			*f = cut(*f, maxRefField)
		}
	}
}

// refKeyOf returns the key of a reference with any content.
func refKeyOf(o *corev1.ObjectReference) refKey {
	group, version, ok := strings.Cut(o.APIVersion, "/")
	if !ok {
		group, version = "", o.APIVersion
	}
	return refKey{o.Kind, group, version, o.Namespace, o.Name, string(o.UID), o.FieldPath}
}

// reference returns the stored form: valid UTF-8, unlike the key.
func (r *refKey) reference(resourceVersion string) corev1.ObjectReference {
	version := r.version
	if r.group != "" {
		version = r.group + "/" + r.version
	}
	return corev1.ObjectReference{
		Kind:            cut(r.kind, maxRefField),
		APIVersion:      cut(version, 2*maxRefField),
		Namespace:       cut(r.namespace, maxRefField),
		Name:            cut(r.name, maxRefField),
		UID:             types.UID(cut(r.uid, maxRefField)),
		ResourceVersion: cut(resourceVersion, maxRefField),
		FieldPath:       cut(r.fieldPath, maxRefField),
	}
}

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

// objectKey identifies an object without version and field path, for the order of calls and for
// limits.
type objectKey struct {
	kind, group, namespace, name, uid string
}

func (r *refKey) object() objectKey {
	return objectKey{r.kind, r.group, r.namespace, r.name, r.uid}
}

var seed = maphash.MakeSeed()

// hash serves the table, counters and token buckets.
func hash[K comparable](key K) uint64 { return maphash.Comparable(seed, key) }

// seriesKey identifies isomorphic events: everything but the note, the annotations and the time.
// Only recorders with the older interface distinguish notes: their callers use a reason for
// different things.
type seriesKey struct {
	source             uint32 // index in Broadcaster.rosters
	eventType          string
	reason, action     string
	regarding, related refKey
	note               string // "" where notes do not count; see combinedKey
}

// pair returns a hash of an event's regarding and related objects, for the cap and the rate limits.
// Events with different related objects are bounded by the number of objects (a ReplicaSet creates
// 500 pods) and are never spam.
func (k *seriesKey) pair() uint64 {
	return hash([2]objectKey{k.regarding.object(), k.related.object()})
}

// notes is the hash under which series with different notes are counted: a note has its own series,
// or shares a combined series. Combined series are counted apart: a restart may find them first,
// and they must not take the place of the others.
func (k *seriesKey) notes() uint64 {
	c := *k
	c.note = ""
	if strings.HasPrefix(k.note, combinedMark) {
		c.note = combinedMark
	}
	return hash(c)
}

// source is who reports, and whether by the older interface, for which notes count.
type source struct {
	controller, instance string
	byNote               bool
}

// seriesID is a digest of a key with its source: equal in every process with the same source.
type seriesID [16]byte

func (k *seriesKey) id(src source) seriesID {
	buf := make([]byte, 0, 512)
	for _, s := range [...]string{
		src.controller, src.instance, strconv.FormatBool(src.byNote), k.eventType, k.reason, k.action, k.note,
		k.regarding.kind, k.regarding.group, k.regarding.version, k.regarding.namespace, k.regarding.name, k.regarding.uid, k.regarding.fieldPath,
		k.related.kind, k.related.group, k.related.version, k.related.namespace, k.related.name, k.related.uid, k.related.fieldPath,
	} {
		buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(s))), s...)
	}
	sum := sha256.Sum256(buf)
	return seriesID(sum[:16])
}

// hint is the prefix of a series' ID at the end of its object's name.
type hint [4]byte

func (id *seriesID) hint() hint { return hint(id[:4]) }

// eventName returns the name of a series' object: the regarding object's name, the time of the
// first occurrence, and the hint. kubectl sorts Events by name, and client-go's names end in the
// time in the same form: all Events are listed in the order of their beginning.
func eventName(regarding string, id *seriesID, born time.Time) string {
	var suffix [12]byte
	binary.BigEndian.PutUint64(suffix[:8], uint64(born.UnixNano()))
	copy(suffix[8:], id[:])
	return nameFor(regarding, ".", suffix[:])
}

// nameFor returns the name with a suffix in hexadecimal form. Names too long, or invalid for an
// Event, as those of some ClusterRoles, become "event".
func nameFor(name, mark string, suffix []byte) string {
	const longest = validation.DNS1123SubdomainMaxLength
	if len(name)+len(mark)+2*len(suffix) > longest || len(validation.IsDNS1123Subdomain(name)) > 0 {
		name = "event"
	}
	b := append(append(make([]byte, 0, longest), name...), mark...)
	return string(hex.AppendEncode(b, suffix))
}

// Values of key.note other than a note: for an event without a note, and the prefix of a combined
// key.
const (
	emptyNote    = " "
	combinedMark = "\x00"
)

// combinedNote begins the note of a series in which events with different notes are counted
// together.
const combinedNote = "(combined from similar events): "

// combinedKey returns the key for notes with the same text up to the first colon, digit or
// quotation mark: "Liveness probe failed" is never counted with "Readiness probe failed".
func combinedKey(note string) string {
	const longest = 64
	end := strings.IndexAny(note, ":\"0123456789")
	if end < 0 || end > longest {
		end = min(len(note), longest)
	}
	return combinedMark + note[:end]
}

func anyNote(string) string { return combinedMark }

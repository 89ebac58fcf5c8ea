// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// kinds resolves objects to references without garbage. kinds caches the kind of each Go type known
// to the scheme: a scheme lookup allocates. Safe for concurrent use.
type kinds struct {
	scheme *runtime.Scheme
	seen   sync.Map // reflect.Type → metav1.TypeMeta
}

var errNilObject = errors.New("the object is nil")

// refer writes the reference to an object and returns its resourceVersion apart: each write of the
// object changes the version and would begin a new series. A nil pointer inside of the interface is
// an error, not a panic.
func (k *kinds) refer(obj runtime.Object, out *corev1.ObjectReference) (resourceVersion string, err error) {
	if v := reflect.ValueOf(obj); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return "", errNilObject
	}
	if ref, ok := obj.(*corev1.ObjectReference); ok {
		*out = *ref
	} else if err := k.describe(obj, out); err != nil {
		return "", err
	}
	resourceVersion = out.ResourceVersion
	out.ResourceVersion = ""
	return resourceVersion, nil
}

// fitRef makes a reference, and the version that is kept apart, fit for the server.
func fitRef(r *corev1.ObjectReference, version *string) {
	for _, f := range [...]*string{
		&r.Kind, &r.APIVersion, &r.Namespace, &r.Name, (*string)(&r.UID), &r.FieldPath, version,
	} {
		*f = cut(*f, maxRefField)
	}
}

// describe writes the reference to an object that is no reference itself.
func (k *kinds) describe(obj runtime.Object, out *corev1.ObjectReference) error {
	kind, err := k.kindOf(obj)
	if err != nil {
		return err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("%T has no metadata: %w", obj, err)
	}
	out.Kind = kind.Kind
	out.APIVersion = kind.APIVersion
	out.Namespace = m.GetNamespace()
	out.Name = m.GetName()
	out.UID = m.GetUID()
	out.ResourceVersion = m.GetResourceVersion()
	return nil
}

// kindOf returns the kind of an object: the one that it says, or, where it says none or a part of
// it, that of its type in the scheme. A part is taken as it is where the scheme has no such type.
func (k *kinds) kindOf(obj runtime.Object) (metav1.TypeMeta, error) {
	said := saidKind(obj)
	if said.Kind != "" && said.APIVersion != "" {
		return said, nil
	}
	found, err := k.lookup(obj)
	if err != nil && said != (metav1.TypeMeta{}) {
		return said, nil
	}
	return found, err
}

// saidKind returns the kind that an object says itself.
func saidKind(obj runtime.Object) metav1.TypeMeta {
	kind, ok := obj.GetObjectKind().(*metav1.TypeMeta)
	if ok {
		return *kind
	}
	return typeMeta(obj.GetObjectKind().GroupVersionKind()) // of an unstructured object
}

func typeMeta(kind schema.GroupVersionKind) (m metav1.TypeMeta) {
	m.APIVersion, m.Kind = kind.ToAPIVersionAndKind()
	return m
}

// lookup returns the kind of an object's type in the scheme.
func (k *kinds) lookup(obj runtime.Object) (kind metav1.TypeMeta, err error) {
	t := reflect.TypeOf(obj)
	if v, ok := k.seen.Load(t); ok {
		return v.(metav1.TypeMeta), nil
	}
	if k.scheme == nil {
		return kind, fmt.Errorf("%T does not say its kind and the recorder has no scheme to look it up", obj)
	}
	all, _, err := k.scheme.ObjectKinds(obj)
	if err != nil {
		return kind, err
	}
	kind = typeMeta(all[0])
	k.seen.Store(t, kind)
	return kind, nil
}

// objectKey identifies an object without version and field path, for the order of calls and for
// limits.
type objectKey struct {
	kind, namespace, name string
	uid                   types.UID
}

func objectOf(r *corev1.ObjectReference) objectKey {
	return objectKey{r.Kind, r.Namespace, r.Name, r.UID}
}

func (k objectKey) String() string {
	return k.kind + "/" + k.namespace + "/" + k.name + "/" + string(k.uid)
}

var seed = maphash.MakeSeed()

// hash serves the table, counters and token buckets.
func hash[K comparable](key K) uint64 { return maphash.Comparable(seed, key) }

// seriesKey identifies isomorphic events: everything but the note, the annotations and the time.
// Only recorders with the older interface distinguish notes: their callers use a reason for
// different things.
type seriesKey struct {
	source             uint32 // index in core.rosters
	eventType          string
	reason, action     string
	regarding, related corev1.ObjectReference // without resourceVersion
	note               string                 // "" where notes do not count; see combinations
}

// pair returns a hash of an event's regarding and related objects, for the cap and the rate limits.
// Events with different related objects are bounded by the number of objects (a ReplicaSet creates
// 500 pods) and are never spam.
func (k *seriesKey) pair() uint64 {
	return hash([2]objectKey{objectOf(&k.regarding), objectOf(&k.related)})
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
	add := func(all ...string) {
		for _, s := range all {
			buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(s))), s...)
		}
	}
	add(src.controller, src.instance, strconv.FormatBool(src.byNote), k.eventType, k.reason, k.action, k.note)
	for _, r := range [...]*corev1.ObjectReference{&k.regarding, &k.related} {
		add(r.Kind, r.APIVersion, r.Namespace, r.Name, string(r.UID), r.FieldPath)
	}
	sum := sha256.Sum256(buf)
	return seriesID(sum[:16])
}

// hint is the prefix of a series' ID at the end of its object's name.
type hint [4]byte

func (id *seriesID) hint() hint { return hint(id[:4]) }

// compare orders hints.
func (h hint) compare(other hint) int { return bytes.Compare(h[:], other[:]) }

// nameSuffix is the length of the time and the hint at the end of a name.
const nameSuffix = 24

// eventName returns the name of a series' object: the regarding object's name, the time of the
// first occurrence, and the hint. kubectl sorts Events by name, and client-go's names end in the
// time in the same form: all Events are listed in the order of their beginning.
func eventName(regarding string, id *seriesID, born time.Time) string {
	var suffix [nameSuffix / 2]byte
	binary.BigEndian.PutUint64(suffix[:8], uint64(born.UnixNano()))
	copy(suffix[8:], id[:])
	return nameFor(regarding, ".", suffix[:])
}

// nameFor returns the name with a suffix in hexadecimal form. Names too long, or invalid for an
// Event, as those of some ClusterRoles, become "event".
func nameFor(name, mark string, suffix []byte) string {
	const longest = validation.DNS1123SubdomainMaxLength
	if len(name)+len(mark)+2*len(suffix) > longest || !validName(name) {
		name = "event"
	}
	b := append(append(make([]byte, 0, longest), name...), mark...)
	return string(hex.AppendEncode(b, suffix))
}

// validName reports whether a name is a DNS-1123 subdomain, but for its length. The library's
// regular expression costs a tenth of a new series.
func validName(name string) bool {
	before := byte('.')
	for _, c := range []byte(name + ".") {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '-' && before != '.':
		case c == '.' && before != '.' && before != '-':
		default:
			return false
		}
		before = c
	}
	return true
}

// Values of key.note other than a note: for an event without a note, and the prefix of a combined
// key, with which no note begins: notes are valid UTF-8.
const (
	emptyNote    = " "
	combinedMark = "\xff"
)

// combinedNote begins the note of a series in which events with different notes are counted
// together.
const combinedNote = "(combined from similar events): "

// combinations returns the keys of the combined series for an event, the closest first: of its part
// of the object (a container), or of the whole object. Where notes count, those that begin alike
// come before all together.
func (k seriesKey) combinations(note string, part bool) (keys []seriesKey) {
	byNote := k.note != ""
	if !part {
		k.regarding.FieldPath = ""
		k.related.FieldPath = ""
		k.action = k.reason
	}
	if byNote {
		k.note = combinedKey(note)
		keys = append(keys, k)
	}
	k.note = combinedMark
	return append(keys, k)
}

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

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// refKey identifies a referenced object. The resourceVersion is omitted: each write of the object
// changes the version and would begin a new series.
type refKey struct {
	kind, group, version, namespace, name, uid, fieldPath string
}

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

// hash identifies the key in this process, but for accidents.
func (k *seriesKey) hash() uint64 { return maphash.Comparable(seed, *k) }

// notes is the hash under which series with different notes are counted: a note has its own series,
// or shares a combined series. Combined series are counted apart: a restart may find them first,
// and they must not take the place of the others.
func (k *seriesKey) notes() uint64 {
	c := *k
	c.note = ""
	if strings.HasPrefix(k.note, combinedMark) {
		c.note = combinedMark
	}
	return maphash.Comparable(seed, c)
}

// objectKey identifies an event's object, without the field path, for ordering.
type objectKey struct {
	kind, group, namespace, name, uid string
}

// seed seeds the hashes used in this process only.
var seed = maphash.MakeSeed()

// pair returns a hash of an event's regarding and related objects, for the cap and the rate limits.
// Events with different related objects are bounded by the number of objects (a ReplicaSet creates
// 500 pods) and are never spam.
func (k *seriesKey) pair() uint64 {
	return maphash.Comparable(seed, [2]objectKey{k.regarding.object(), k.related.object()})
}

func (r *refKey) object() objectKey {
	return objectKey{r.kind, r.group, r.namespace, r.name, r.uid}
}

func (r *refKey) apiVersion() string {
	if r.group == "" {
		return r.version
	}
	return r.group + "/" + r.version
}

// reference returns the stored form: valid UTF-8, unlike the key.
func (r *refKey) reference(resourceVersion string) corev1.ObjectReference {
	return corev1.ObjectReference{
		Kind:            cut(r.kind, maxRefField),
		APIVersion:      cut(r.apiVersion(), 2*maxRefField),
		Namespace:       cut(r.namespace, maxRefField),
		Name:            cut(r.name, maxRefField),
		UID:             types.UID(cut(r.uid, maxRefField)),
		ResourceVersion: cut(resourceVersion, maxRefField),
		FieldPath:       cut(r.fieldPath, maxRefField),
	}
}

// source is who reports, and whether by the older interface, for which notes count.
type source struct {
	controller, instance string
	byNote               bool
}

// seriesID is a digest of a key with its source: equal in every process with the same source.
type seriesID [16]byte

func (k *seriesKey) id(src source) (id seriesID) {
	buf := make([]byte, 0, 512)
	for _, s := range [...]string{src.controller, src.instance, strconv.FormatBool(src.byNote), k.eventType, k.reason, k.action, k.note} {
		buf = appendString(buf, s)
	}
	for _, r := range [...]*refKey{&k.regarding, &k.related} {
		for _, s := range [...]string{r.kind, r.group, r.version, r.namespace, r.name, r.uid, r.fieldPath} {
			buf = appendString(buf, s)
		}
	}
	sum := sha256.Sum256(buf)
	copy(id[:], sum[:])
	return id
}

func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func (id *seriesID) hint() hint { return hint(id[:4]) }

// eventName returns the name of a series' object: the regarding object's name, the time of the
// first occurrence, and a hash of the key. kubectl sorts Events by name, and client-go's names end
// in the time in the same form: all Events are listed in the order of their beginning.
func eventName(regarding string, id *seriesID, born time.Time) string {
	const suffix = 1 + 16 + 8
	b := make([]byte, 0, validation.DNS1123SubdomainMaxLength)
	b = append(b, subdomain(regarding, validation.DNS1123SubdomainMaxLength-suffix)...)
	b = append(b, '.')
	b = hex.AppendEncode(b, binary.BigEndian.AppendUint64(nil, uint64(born.UnixNano())))
	return string(hex.AppendEncode(b, id[:4]))
}

// hintOf returns the hash of the series' key from an object's name.
func hintOf(name string) (h hint, ok bool) {
	if len(name) < 2*len(h) {
		return h, false
	}
	_, err := hex.Decode(h[:], []byte(name[len(name)-2*len(h):]))
	return h, err == nil
}

// birth returns the time for the name of a new series, later than all earlier times, even if the
// clock is set back or two events share a clock reading. The lock is held.
func (b *Broadcaster) birth(now time.Time) time.Time {
	if !now.After(b.lastBirth) || now.UnixNano() <= b.lastBirth.UnixNano() {
		now = b.lastBirth.Add(1)
	}
	b.lastBirth = now
	return now
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

// anyNote returns the key for all notes.
func anyNote(string) string { return combinedMark }

// subdomain makes a DNS subdomain of at most limit bytes out of any name; valid names are returned
// unchanged. Objects such as ClusterRoles have names invalid for Events.
func subdomain(name string, limit int) string {
	valid := func(s string) bool { return len(s) <= limit && len(validation.IsDNS1123Subdomain(s)) == 0 }
	if valid(name) {
		return name
	}
	labels := strings.FieldsFunc(strings.ToLower(name[:min(len(name), limit)]), func(r rune) bool { return r == '.' })
	for i, l := range labels {
		labels[i] = strings.Trim(strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '-'
		}, l), "-")
	}
	labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" })
	if s := strings.Join(labels, "."); valid(s) {
		return s
	}
	return "event"
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// refKey identifies a referenced object. The resourceVersion is left out on purpose: it changes
// with every write of the object and would make each occurrence a series of its own.
type refKey struct {
	kind, group, version, namespace, name, uid, fieldPath string
}

// seriesKey is what makes two events isomorphic: everything but the note, the annotations and the
// time. Only the recorders with the older interface, whose callers use one reason for different
// things, distinguish notes.
type seriesKey struct {
	source             uint32 // index of controller and instance, see sources
	eventType          string
	reason, action     string
	regarding, related refKey
	note               string // "" where notes do not count; see combinedKey
}

// notes is what a series is counted under, of those that differ in the note only: each note has a
// series of its own, or stands with others in a combined one. A restart may find the combined ones
// first, which must not take the place of the others.
func (k *seriesKey) notes() seriesKey {
	c := *k
	if strings.HasPrefix(k.note, combinedMark) {
		c.note = combinedMark
	} else {
		c.note = ""
	}
	return c
}

// objectKey is the object that an event is about, without the part of it: for order.
type objectKey struct {
	kind, group, namespace, name, uid string
}

// pairKey is the object that an event is about, and the related one: for the cap and the rate
// limits. Events that differ in the related object are bounded by the number of objects there are
// (a ReplicaSet creates 500 pods), so they are no spam, however many they are.
type pairKey struct {
	regarding, related objectKey
}

func (k *seriesKey) pair() pairKey {
	return pairKey{k.regarding.object(), k.related.object()}
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

// reference is what is stored of it: valid UTF-8, which the key need not be.
func (r *refKey) reference(resourceVersion string) corev1.ObjectReference {
	return corev1.ObjectReference{
		Kind:            cut(r.kind, maxRefField),
		APIVersion:      cut(r.apiVersion(), 2*maxRefField),
		Namespace:       cut(r.namespace, maxRefField),
		Name:            cut(r.name, maxRefField),
		UID:             types.UID(cut(r.uid, maxRefField)),
		ResourceVersion: strings.Clone(cut(resourceVersion, maxRefField)),
		FieldPath:       cut(r.fieldPath, maxRefField),
	}
}

// clone detaches the strings from whatever larger memory they are part of.
func (r *refKey) clone() refKey {
	return refKey{
		strings.Clone(r.kind), strings.Clone(r.group), strings.Clone(r.version), strings.Clone(r.namespace),
		strings.Clone(r.name), strings.Clone(r.uid), strings.Clone(r.fieldPath),
	}
}

func (k *seriesKey) clone() seriesKey {
	return seriesKey{k.source, strings.Clone(k.eventType), strings.Clone(k.reason), strings.Clone(k.action), k.regarding.clone(), k.related.clone(), strings.Clone(k.note)}
}

// source is who reports, and whether by the older interface, for which notes count.
type source struct {
	controller, instance string
	byNote               bool
}

// seriesID is a digest of a key with its source: the same in every process that reports the same.
type seriesID [16]byte

func (k *seriesKey) id(src source) seriesID {
	h := sha256.New()
	put := func(ss ...string) {
		var n [4]byte
		for _, s := range ss {
			binary.BigEndian.PutUint32(n[:], uint32(len(s)))
			h.Write(n[:])
			h.Write([]byte(s))
		}
	}
	put(src.controller, src.instance, strconv.FormatBool(src.byNote), k.eventType, k.reason, k.action, k.note)
	for _, r := range []*refKey{&k.regarding, &k.related} {
		put(r.kind, r.group, r.version, r.namespace, r.name, r.uid, r.fieldPath)
	}
	var id seriesID
	copy(id[:], h.Sum(nil))
	return id
}

// eventName is the name of a series' object: the name of what it is about, the time at which the
// series began, and a hash of the key. kubectl shows Events in the order of their names, and
// client-go's end in the time in the same form, so all come in the order in which they began.
func eventName(regarding string, id seriesID, born time.Time) string {
	suffix := fmt.Sprintf(".%016x%x", born.UnixNano(), id[:4])
	return subdomain(regarding, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// birth is the time by which a new series is named: later than that of any before it, though the
// clock be set back or two events come within its resolution. The lock is held.
func (b *Broadcaster) birth(now time.Time) time.Time {
	if !now.After(b.lastBirth) || now.UnixNano() <= b.lastBirth.UnixNano() {
		now = b.lastBirth.Add(1)
	}
	b.lastBirth = now
	return now
}

// What key.note is where it is not the note: of an event without one, and before what begins the
// notes of several.
const (
	emptyNote    = " "
	combinedMark = "\x00"
)

// combinedNote begins the note of a series in which events with different notes are counted
// together.
const combinedNote = "(combined from similar events): "

// combinedKey stands for the notes that begin as the given one does, up to the first colon, digit
// or quotation mark: "Liveness probe failed" is never counted with "Readiness probe failed".
func combinedKey(note string) string {
	const longest = 64
	end := strings.IndexAny(note, ":\"0123456789")
	if end < 0 || end > longest {
		end = min(len(note), longest)
	}
	return combinedMark + note[:end]
}

// subdomain makes a DNS subdomain of at most limit bytes out of any name; one that is valid comes
// back unchanged.
func subdomain(name string, limit int) string {
	if len(name) <= limit && len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	b := make([]byte, 0, min(len(name), limit))
	for i := 0; i < len(name) && len(b) < limit; i++ {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c == '.' && len(b) > 0 && b[len(b)-1] != '.' && b[len(b)-1] != '-':
		default: // no label begins with a dash
			if len(b) == 0 || b[len(b)-1] == '.' {
				continue
			}
			c = '-'
		}
		b = append(b, c)
	}
	s := strings.TrimRight(string(b), "-.")
	if s == "" || len(validation.IsDNS1123Subdomain(s)) > 0 {
		return "event"
	}
	return s
}

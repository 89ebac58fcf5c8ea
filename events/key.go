// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// refKey identifies a referenced object. The resourceVersion is left out on purpose: it changes with every write of the object and
// would make each occurrence a series of its own.
type refKey struct {
	kind, group, version, namespace, name, uid, fieldPath string
}

// seriesKey is what makes two events isomorphic: everything but the note, the annotations and the time.
type seriesKey struct {
	source             uint32 // index of controller and instance, see sources
	eventType          string
	reason, action     string
	regarding, related refKey
}

// objectKey is the object that an event is about, without the part of it: for caps, rate limits and order.
type objectKey struct {
	kind, group, namespace, name, uid string
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
	return seriesKey{k.source, strings.Clone(k.eventType), strings.Clone(k.reason), strings.Clone(k.action), k.regarding.clone(), k.related.clone()}
}

// source is who reports.
type source struct {
	controller, instance, host string
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
	put(src.controller, src.instance, k.eventType, k.reason, k.action)
	for _, r := range []*refKey{&k.regarding, &k.related} {
		put(r.kind, r.group, r.version, r.namespace, r.name, r.uid, r.fieldPath)
	}
	var id seriesID
	copy(id[:], h.Sum(nil))
	return id
}

// eventName is the name of a series' object: the name of what it is about, and a hash of key and epoch. It is the same after a restart,
// which is how a node that may not list finds what it wrote before.
func eventName(regarding string, id seriesID, epoch uint32) string {
	var in [20]byte
	copy(in[:], id[:])
	binary.BigEndian.PutUint32(in[16:], epoch)
	sum := sha256.Sum256(in[:])
	suffix := "." + hex.EncodeToString(sum[:8])
	return subdomain(regarding, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// subdomain makes a DNS subdomain of at most limit bytes out of any name; one that is valid comes back unchanged.
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

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// errNil stands for a nil status handed to a reader.
var errNil = errors.New("nil status")

// Store is a cache seen by its readers.
type Store interface {
	// Get returns the content of the pod's status.
	Get(uid cache.UID) ([]pleg.Item, error)
	// Unread returns the IDs missing in the pod's status because of failed reads.
	Unread(uid cache.UID) []string
	// Fields returns the content of the pod's status beside the phases.
	Fields(uid cache.UID) []field
	// GetNewerThan waits for a status newer than t.
	GetNewerThan(ctx context.Context, uid cache.UID, t time.Time) (shown, error)
	// GetPhasesNewerThan waits for a status with phases newer than t.
	GetPhasesNewerThan(ctx context.Context, uid cache.UID, t time.Time) (shown, error)
	// AsOf returns the time of the pod's status.
	AsOf(uid cache.UID) time.Time
	// Global returns the global time.
	Global() time.Time
	// UIDs returns the pods held.
	UIDs() []cache.UID
	// Waiting returns the number of blocked GetNewerThan calls.
	Waiting() int
}

// System is a run of a generator.
type System interface {
	Run(ctx context.Context) error
	Watch() <-chan pleg.Event
	RequestRelist(uid cache.UID)
	RequestReinspect(uid cache.UID)
	Health() error
	Stats() pleg.Stats
}

var _ System = (*pleg.Generator[Status])(nil)

// view shows a cache as a Store.
type view[S any] struct {
	*cache.Cache[S]
	items  func(*S) []pleg.Item
	fields func(*S) []field
	unread func(*S) []string // nil: a status shows the phases of unreadable items
}

// shown is the content of a status.
type shown struct {
	Items  []pleg.Item
	Fields []field
	Unread []string
}

func (v view[S]) Get(uid cache.UID) ([]pleg.Item, error) {
	s, err := v.Cache.Get(uid)
	if s == nil {
		return nil, errNil
	}
	return v.items(s), err
}

func (v view[S]) Fields(uid cache.UID) []field {
	s, _ := v.Cache.Get(uid)
	if s == nil {
		return nil
	}
	return v.fields(s)
}

func (v view[S]) Unread(uid cache.UID) []string {
	s, _ := v.Cache.Get(uid)
	return v.lacks(s)
}

func (v view[S]) lacks(s *S) []string {
	if s == nil || v.unread == nil {
		return nil
	}
	return v.unread(s)
}

func (v view[S]) GetNewerThan(ctx context.Context, uid cache.UID, t time.Time) (shown, error) {
	return v.shown(v.Cache.GetNewerThan(ctx, uid, t))
}

func (v view[S]) GetPhasesNewerThan(ctx context.Context, uid cache.UID, t time.Time) (shown, error) {
	return v.shown(v.Cache.GetPhasesNewerThan(ctx, uid, t))
}

func (v view[S]) shown(s *S, err error) (shown, error) {
	if s == nil {
		return shown{}, errNil
	}
	return shown{v.items(s), v.fields(s), v.lacks(s)}, err
}

// Status is the pod status of the first tier: the items as read. It is immutable.
type Status struct {
	UID   cache.UID
	Items []pleg.Item
	Texts []string // the content of each item beside its phase

	Lacks []string // unreadable IDs, missing above
}

// lacking returns the unreadable IDs, which are missing.
func (s *Status) lacking() []string { return s.Lacks }

// lose removes the unreadable items.
func (s *Status) lose(unread []string) {
	for _, id := range unread {
		at := slices.IndexFunc(s.Items, func(it pleg.Item) bool { return it.ID == id })
		s.Items = slices.Delete(s.Items, at, at+1)
		s.Texts = slices.Delete(s.Texts, at, at+1)
	}
	s.Lacks = unread
}

// add adds an item with its content.
func (s *Status) add(it pleg.Item, text string) {
	s.Items = append(s.Items, it)
	s.Texts = append(s.Texts, text)
}

// withoutID returns a status without an ID.
func withoutID(s *Status, id string) *Status {
	without := &Status{UID: s.UID, Lacks: s.Lacks}
	for i, it := range s.Items {
		if it.ID != id {
			without.add(it, s.Texts[i])
		}
	}
	return without
}

// sameContent reports whether two statuses have the same content of each ID in both.
func sameContent(a, b *Status) bool {
	for i, it := range a.Items {
		k := slices.IndexFunc(b.Items, func(x pleg.Item) bool { return x.ID == it.ID })
		if k >= 0 && a.Texts[i] != b.Texts[k] {
			return false
		}
	}
	return true
}

// fieldsOf returns the content of a Status, without unreadable items.
func fieldsOf(s *Status) (fields []field) {
	for i, it := range s.Items {
		if i < len(s.Texts) && s.Texts[i] != "" {
			fields = append(fields, field{it.ID, s.Texts[i]})
		}
	}
	return fields
}

// itemsOf returns the items of a Status.
func itemsOf(s *Status) []pleg.Item { return s.Items }

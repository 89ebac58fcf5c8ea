// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
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
	// GetNewerThan waits for a status newer than t.
	GetNewerThan(ctx context.Context, uid cache.UID, t time.Time) ([]pleg.Item, error)
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
	items func(*S) []pleg.Item
}

func (v view[S]) Get(uid cache.UID) ([]pleg.Item, error) {
	s, err := v.Cache.Get(uid)
	return v.shown(s, err)
}

func (v view[S]) GetNewerThan(ctx context.Context, uid cache.UID, t time.Time) ([]pleg.Item, error) {
	s, err := v.Cache.GetNewerThan(ctx, uid, t)
	return v.shown(s, err)
}

func (v view[S]) shown(s *S, err error) ([]pleg.Item, error) {
	if s == nil {
		return nil, errNil
	}
	return v.items(s), err
}

// Status is the pod status of the first tier: the items as read. It is immutable.
type Status struct {
	UID   cache.UID
	Items []pleg.Item
}

// itemsOf returns the items of a Status.
func itemsOf(s *Status) []pleg.Item { return s.Items }

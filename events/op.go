// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import "time"

// task is what a settling series does next.
type task uint8

const (
	taskCreate task = iota // create under the name of the epoch
	taskRead               // that name is taken: look at what is stored there
	taskPoint              // note the new epoch on the object of epoch 0, where a restart begins to look
)

// opKind is one kind of API call.
type opKind uint8

const (
	opNone opKind = iota
	opCreate
	opRead // an empty patch: returns the stored object with the rights of a node, changes nothing
	opPoint
	opPatch
)

// op is a call that a series wants made. It is a snapshot: occurrences after it do not change it.
type op struct {
	kind   opKind
	epoch  uint32
	count  int64  // occurrences that the object tells of once the call succeeded
	series bool   // whether the object has the series field
	state  string // the state annotation, "" for a singleton
	last   time.Time
	final  bool   // the last call of this series
	latest uint32 // opPoint: the epoch to note
}

// snapshot is what an opRead found.
type snapshot struct {
	ours      bool // same controller, instance and object: may be continued
	eventTime time.Time
	series    bool
	count     int64
	last      time.Time
	state     string
	latest    uint32
}

// String is the kind's name in metrics.
func (k opKind) String() string {
	switch k {
	case opCreate:
		return "create"
	case opRead:
		return "read"
	case opPoint:
		return "point"
	case opPatch:
		return "patch"
	}
	return "none"
}

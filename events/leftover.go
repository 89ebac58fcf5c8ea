// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// This file has what an earlier process has left: objects, as a roster names them.

// leftover is an object of an earlier process.
type leftover struct {
	path string // namespace/name
	found
	// past: a later object has its hint. Nothing continues this one, also when that one is gone.
	past bool
}

// leftovers are the objects of an earlier process that are neither continued nor ended.
type leftovers struct {
	by map[hint][]leftover // in the order of their beginning
	n  int
}

// add takes in an object, unless its name is of another form than this package's.
func (l *leftovers) add(one leftover) {
	h, ok := hintOf(one.path)
	if !ok {
		return
	}
	if l.by == nil {
		l.by = map[hint][]leftover{}
	}
	list := append(l.by[h], one)
	slices.SortFunc(list, func(a, b leftover) int { return bornOf(a.path).Compare(bornOf(b.path)) })
	for i := range list {
		list[i].past = i < len(list)-1
	}
	l.by[h] = list
	l.n++
}

// latest returns the object that a series with a hint may continue, if there is one.
func (l *leftovers) latest(h hint) (one leftover, ok bool) {
	list := l.by[h]
	if len(list) == 0 || list[len(list)-1].past {
		return one, false
	}
	return list[len(list)-1], true
}

// takeOf takes out the last object with a hint: there is one.
func (l *leftovers) takeOf(h hint) leftover {
	list := l.by[h]
	last := len(list) - 1
	one := list[last]
	l.by[h] = list[:last]
	if last == 0 {
		delete(l.by, h)
	}
	l.n--
	return one
}

// takeFirst takes out the last object with the least hint: there is one.
func (l *leftovers) takeFirst() leftover {
	return l.takeOf(slices.MinFunc(slices.Collect(maps.Keys(l.by)), hint.compare))
}

// all yields each object, in the order of the hints.
func (l *leftovers) all() iter.Seq[leftover] {
	return func(yield func(leftover) bool) {
		for _, h := range slices.SortedFunc(maps.Keys(l.by), hint.compare) {
			for _, one := range l.by[h] {
				if !yield(one) {
					return
				}
			}
		}
	}
}

func (l leftover) line() string {
	last := strconv.FormatInt(l.last.UnixMilli(), 36)
	text := fmt.Sprintf("%s %d %s %s", l.path, l.count, last, cmp.Or(l.version, "-"))
	if l.loose {
		text += " ~"
	}
	return text
}

// parseLine reads a line of a roster. Of a line that is a path only the count is 0: the object is
// to be read.
func parseLine(line string) (l leftover, ok bool) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return l, false
	}
	l.path = fields[0]
	namespace, name, _ := strings.Cut(l.path, "/")
	if namespace == "" || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return l, false
	}
	if len(fields) < 4 {
		return l, true
	}
	count, err := strconv.ParseInt(fields[1], 10, 64)
	last, bad := strconv.ParseInt(fields[2], 36, 64)
	if err != nil || bad != nil || count < 1 {
		return l, true // to be read
	}
	l.count = count
	l.last = time.UnixMilli(last)
	l.begun = bornOf(name)
	if fields[3] != "-" {
		l.version = fields[3]
	}
	l.loose = len(fields) > 4
	return l, true
}

// bornOf returns the time in a name, as made by eventName.
func bornOf(name string) time.Time {
	var suffix [12]byte
	n, err := hex.Decode(suffix[:], []byte(name[max(len(name)-2*len(suffix), 0):]))
	if err != nil || n != len(suffix) {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(suffix[:8])))
}

// hintOf returns the hint at the end of a name.
func hintOf(name string) (h hint, ok bool) {
	n, err := hex.Decode(h[:], []byte(name[max(len(name)-2*len(h), 0):]))
	return h, err == nil && n == len(h)
}

// readRoster returns the series named in a roster, and whether its writer ended in order. changes
// is set to the highest number of a change.
func readRoster(e *eventsv1.Event, changes *int) (all map[string]leftover, exact bool) {
	all = map[string]leftover{}
	for number := range maxChanges + 1 {
		key := AnnotationRoster
		if number > 0 {
			key = changeKey(number)
		}
		text, ok := e.Annotations[key]
		if !ok {
			continue
		}
		*changes = number
		_, rest, _ := strings.Cut(text, " ")
		mode, packed, _ := strings.Cut(rest, " ")
		exact = mode == "end"
		for _, line := range unpackLines(packed) {
			path, removed := strings.CutPrefix(line, "-")
			l, ok := parseLine(line)
			switch {
			case removed:
				delete(all, path)
			case ok:
				all[l.path] = l
			}
		}
	}
	return all, exact
}

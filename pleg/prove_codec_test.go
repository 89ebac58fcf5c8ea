// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/evented-pleg/evented-pleg/cache"
)

// instantClass says what an instant is compared with, which decides how far its order must be kept.
type instantClass uint8

const (
	// moment is when something happened or is due: it is compared with begins of reads that are yet to
	// end, and with now.
	moment instantClass = iota
	// begin is when a read began: it is compared with moments, with what is ordered, and with other
	// begins.
	begin
	// order is what is compared with begins, and with its like, but with no moment.
	order
	// dated is ordered, and compared with now besides.
	dated

	instantClasses = 4
)

// classes are the classes of fields; all other instants are moments.
var classes = map[string]instantClass{
	"flight.began": begin, "reported.read": begin, "stored.asOf": begin,
	"lastList.listingBegan": begin, "own.listed": begin,
	"lists.began": begin, "lists.applied": begin, "lists.global": begin, "round.began": begin,
	"forgetting.forgotten": begin, "guard.tombstones": begin, "guard.floor": begin,
	"proveRead.began": begin, "proveLook.at": begin, "proveEntry.at": begin,
	"proveTomb.at": begin, "proveWorld.global": begin,

	"wanted.want": order, "wanted.waited": order, "wanted.force": order, "reported.changedAt": order,
	"own.returned": order, "own.unlisted": order, "ownCall.began": order,
	"proveWorld.callBegan": order, "proveWorld.since": order, "ledger.uncertainDropped": order,
	"flight.started": order, "proveRead.asked": order, "lists.finished": order, "forgetting.unconfirmedDropped": order,
	"conn.connected": dated, "streaming.eventsSince": order, "streaming.lastDiscard": order,
	"muteStream.missed": order, "candidate.found": order,
	"candidate.stream": order, "overruledClaims.last": order, "proveWorld.now": order,
}

// constant are the fields that a search never changes, or that decide nothing: what is counted and
// reported, and marks that are used up within one input. They are not part of a state.
var constant = map[string]bool{
	"core.cfg": true, "core.clock": true, "core.random": true, "core.reporting": true, "core.todo": true,
	"streaming.connCfg": true, "streaming.ended": true, "ledger.marks": true, "ledger.looks": true,
	"attention.affected": true, "forgetting.dropsUnconfirmed": true,
	"item.mark": true, "item.name": true, "heard.events": true, "belief.stamp": true,
	"pod.name": true, "pod.namespace": true, "lastList.seenIn": true, "lists.serial": true,
	"counters.events": true, "overruledClaims.unreported": true, "overruledClaims.first": true, "overruledClaims.report": true, "queueing.affected": true,
}

// counted are the counts of which something depends; all others are left out.
var counted = map[string]bool{"streamCounts.claims": true, "trustCounts.acksLost": true}

// isCounts says that a type holds nothing but counts.
func isCounts(name string) bool {
	return name == "readCounts" || name == "streamCounts" || name == "trustCounts"
}

// encoder writes a value down: its shape and numbers in buf, and its instants, in order, apart.
type encoder struct {
	buf  []byte
	at   []instant
	kind []instantClass
	objs []unsafe.Pointer // what has been written: whoever refers to it again writes its number
}

// decoder reads what an encoder wrote.
type decoder struct {
	buf  []byte
	at   []instant
	objs []unsafe.Pointer
}

func (d *decoder) byte() byte {
	b := d.buf[0]
	d.buf = d.buf[1:]
	return b
}

func (d *decoder) int() int64 {
	n, size := binary.Varint(d.buf)
	d.buf = d.buf[size:]
	return n
}

// coder writes and reads the values of one type. Coders are made once for each type, by reflection,
// so that a field that is added to the core is a part of its state without anybody's doing.
type coder struct {
	enc func(e *encoder, p unsafe.Pointer)
	dec func(d *decoder, p unsafe.Pointer)
}

type coderKey struct {
	t     reflect.Type
	class instantClass
}

var coders = map[coderKey]*coder{}

// coderOf returns the coder of a type whose instants are of the given class, where no field says
// otherwise.
func coderOf(t reflect.Type, class instantClass) *coder {
	key := coderKey{t, class}
	if c := coders[key]; c != nil {
		return c
	}
	c := &coder{}
	coders[key] = c // before it is whole: types refer to each other
	makeCoder(c, t, class)
	return c
}

func makeCoder(c *coder, t reflect.Type, class instantClass) {
	switch {
	case t == reflect.TypeFor[instant]():
		c.enc = func(e *encoder, p unsafe.Pointer) {
			e.at, e.kind = append(e.at, *(*instant)(p)), append(e.kind, class)
		}
		c.dec = func(d *decoder, p unsafe.Pointer) {
			*(*instant)(p), d.at = d.at[0], d.at[1:]
		}
	case t == reflect.TypeFor[error]():
		c.enc = func(e *encoder, p unsafe.Pointer) { e.bool(*(*error)(p) != nil) }
		c.dec = func(d *decoder, p unsafe.Pointer) {
			if d.byte() != 0 {
				*(*error)(p) = errProve
			}
		}
	case mapCoders[t] != nil:
		mapCoders[t](c, class)
	default:
		makeKindCoder(c, t, class)
	}
}

var errProve = errors.New("the search has it fail")

func (e *encoder) bool(b bool) {
	if b {
		e.buf = append(e.buf, 1)
		return
	}
	e.buf = append(e.buf, 0)
}

func makeKindCoder(c *coder, t reflect.Type, class instantClass) {
	switch t.Kind() {
	case reflect.Bool, reflect.Uint8, reflect.Int8:
		c.enc = func(e *encoder, p unsafe.Pointer) { e.buf = append(e.buf, *(*byte)(p)) }
		c.dec = func(d *decoder, p unsafe.Pointer) { *(*byte)(p) = d.byte() }
	case reflect.Int32:
		c.enc = func(e *encoder, p unsafe.Pointer) { e.buf = binary.AppendVarint(e.buf, int64(*(*int32)(p))) }
		c.dec = func(d *decoder, p unsafe.Pointer) { *(*int32)(p) = int32(d.int()) }
	case reflect.Int, reflect.Int64, reflect.Uint64:
		c.enc = func(e *encoder, p unsafe.Pointer) { e.buf = binary.AppendVarint(e.buf, *(*int64)(p)) }
		c.dec = func(d *decoder, p unsafe.Pointer) { *(*int64)(p) = d.int() }
	case reflect.String:
		c.enc = func(e *encoder, p unsafe.Pointer) { e.buf = append(e.buf, wordNumber(*(*string)(p))) }
		c.dec = func(d *decoder, p unsafe.Pointer) { *(*string)(p) = words[d.byte()] }
	case reflect.Struct:
		makeStructCoder(c, t, class)
	case reflect.Pointer:
		makePointerCoder(c, t, class)
	case reflect.Slice:
		makeSliceCoder(c, t, class)
	case reflect.Array:
		elem, size := coderOf(t.Elem(), class), t.Elem().Size()
		c.enc = func(e *encoder, p unsafe.Pointer) {
			for i := range t.Len() {
				elem.enc(e, unsafe.Add(p, uintptr(i)*size))
			}
		}
		c.dec = func(d *decoder, p unsafe.Pointer) {
			for i := range t.Len() {
				elem.dec(d, unsafe.Add(p, uintptr(i)*size))
			}
		}
	default:
		panic(fmt.Sprintf("%v cannot be part of a state: teach makeKindCoder, or name its field in constant", t))
	}
}

// words are the strings that occur in states.
var words = []string{"", "p", "q", "a", "b", "c"}

func wordNumber(s string) byte {
	i := slices.Index(words, s)
	if i < 0 {
		panic(fmt.Sprintf("%q is none of the words of a search", s))
	}
	return byte(i)
}

func makeStructCoder(c *coder, t reflect.Type, class instantClass) {
	type part struct {
		*coder
		at uintptr
	}
	var parts []part
	name, _, _ := strings.Cut(t.Name(), "[")
	for f := range t.Fields() {
		if path := name + "." + f.Name; !constant[path] && (counted[path] || !isCounts(name)) {
			in := class
			if own, ok := classes[path]; ok {
				in = own
			}
			parts = append(parts, part{coderOf(f.Type, in), f.Offset})
		}
	}
	c.enc = func(e *encoder, p unsafe.Pointer) {
		for i := range parts {
			parts[i].enc(e, unsafe.Add(p, parts[i].at))
		}
	}
	c.dec = func(d *decoder, p unsafe.Pointer) {
		for i := range parts {
			parts[i].dec(d, unsafe.Add(p, parts[i].at))
		}
	}
}

// makePointerCoder writes what a pointer refers to once, and its number from then on: 0 is nil.
func makePointerCoder(c *coder, t reflect.Type, class instantClass) {
	elem := coderOf(t.Elem(), class)
	c.enc = func(e *encoder, p unsafe.Pointer) {
		to := *(*unsafe.Pointer)(p)
		if to == nil {
			e.buf = append(e.buf, 0)
			return
		}
		if i := slices.Index(e.objs, to); i >= 0 {
			e.buf = append(e.buf, byte(i+1))
			return
		}
		e.objs = append(e.objs, to)
		e.buf = append(e.buf, 255)
		elem.enc(e, to)
	}
	c.dec = func(d *decoder, p unsafe.Pointer) {
		switch n := d.byte(); n {
		case 0:
		case 255:
			to := reflect.New(t.Elem()).UnsafePointer()
			*(*unsafe.Pointer)(p) = to
			d.objs = append(d.objs, to)
			elem.dec(d, to)
		default:
			*(*unsafe.Pointer)(p) = d.objs[n-1]
		}
	}
}

// makeSliceCoder tells nil from empty where that matters: a listing of nothing is a listing.
func makeSliceCoder(c *coder, t reflect.Type, class instantClass) {
	listing := t == reflect.TypeFor[[]Item]()
	elem, size := coderOf(t.Elem(), class), t.Elem().Size()
	c.enc = func(e *encoder, p unsafe.Pointer) {
		s := (*[]struct{})(p) // of whatever: only the header is looked at
		if unsafe.SliceData(*s) == nil || len(*s) == 0 && !listing {
			e.buf = append(e.buf, 0)
			return
		}
		e.buf = append(e.buf, byte(len(*s)+1))
		for i := range len(*s) {
			elem.enc(e, unsafe.Add(unsafe.Pointer(unsafe.SliceData(*s)), uintptr(i)*size))
		}
	}
	c.dec = func(d *decoder, p unsafe.Pointer) {
		n := int(d.byte())
		if n == 0 {
			return
		}
		s := reflect.MakeSlice(t, n-1, n-1)
		reflect.NewAt(t, p).Elem().Set(s)
		for i := range n - 1 {
			elem.dec(d, unsafe.Add(s.UnsafePointer(), uintptr(i)*size))
		}
	}
}

// mapCoders are the maps that occur, each with the order in which its keys are written.
var mapCoders = map[reflect.Type]func(c *coder, class instantClass){}

func init() { // mapCoder refers to mapCoders
	addMapCoder[cache.UID, *pod](ordered)
	addMapCoder[cache.UID, instant](ordered)
	addMapCoder[uint64, cache.UID](ordered)
	addMapCoder[string, *item](ordered)
	addMapCoder[string, unconfirmedID](ordered)
	addMapCoder[string, Item](ordered)
	addMapCoder[*pod, flight](byUID)
	addMapCoder[*pod, struct{}](byUID)
	addMapCoder[*item, Phase](func(a, b *item) int { return cmp.Compare(a.id, b.id) })
}

func addMapCoder[K comparable, V any](order func(a, b K) int) {
	mapCoders[reflect.TypeFor[map[K]V]()] = mapCoder[K, V](order)
}

func ordered[K cmp.Ordered](a, b K) int { return cmp.Compare(a, b) }

func mapCoder[K comparable, V any](order func(a, b K) int) func(c *coder, class instantClass) {
	return func(c *coder, class instantClass) {
		key, value := coderOf(reflect.TypeFor[K](), class), coderOf(reflect.TypeFor[V](), class)
		c.enc = func(e *encoder, p unsafe.Pointer) {
			m := *(*map[K]V)(p)
			if m == nil {
				e.buf = append(e.buf, 0)
				return
			}
			e.buf = append(e.buf, byte(len(m)+1))
			if len(m) == 0 {
				return
			}
			keys := make([]K, 0, 4)
			for k := range m {
				keys = append(keys, k)
			}
			slices.SortFunc(keys, order)
			for i := range keys {
				v := m[keys[i]]
				key.enc(e, unsafe.Pointer(&keys[i]))
				value.enc(e, unsafe.Pointer(&v))
			}
		}
		c.dec = func(d *decoder, p unsafe.Pointer) {
			n := int(d.byte())
			if n == 0 {
				return
			}
			m := make(map[K]V)
			*(*map[K]V)(p) = m
			for range n - 1 {
				var k K
				var v V
				key.dec(d, unsafe.Pointer(&k))
				value.dec(d, unsafe.Pointer(&v))
				m[k] = v
			}
		}
	}
}

// TestProveNamesFields: the search tells fields apart by their names. A field that was renamed
// without its entry would be a moment again, or part of the state again, and nobody would notice.
func TestProveNamesFields(t *testing.T) {
	fields, seen := map[string]bool{}, map[reflect.Type]bool{}
	for _, root := range []reflect.Type{
		reflect.TypeFor[core[status]](), reflect.TypeFor[proveWorld](), reflect.TypeFor[ownCall](),
	} {
		nameFields(fields, seen, root)
	}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if !fields[name] {
			t.Errorf("classes names %s, which is no field of a state: name the field as it is called now", name)
		}
	}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(constant)), slices.Sorted(maps.Keys(counted))) {
		if !fields[name] {
			t.Errorf("constant or counted names %s, which is no field of a state: name the field as it is called now", name)
		}
	}
}

// nameFields adds the fields of a type, and of all that hangs on it, in the form that the coder asks
// for them.
func nameFields(fields map[string]bool, seen map[reflect.Type]bool, t reflect.Type) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		nameFields(fields, seen, t.Elem())
	case reflect.Map:
		nameFields(fields, seen, t.Key())
		nameFields(fields, seen, t.Elem())
	case reflect.Struct:
		name, _, _ := strings.Cut(t.Name(), "[")
		for f := range t.Fields() {
			fields[name+"."+f.Name] = true
			nameFields(fields, seen, f.Type)
		}
	}
}

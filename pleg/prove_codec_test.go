// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/evented-pleg/evented-pleg/cache"
)

// proveCodec writes and reads states. Coders are made by reflection, once for each type, so that a
// field that is added to the core is a part of its states with nothing to be done.
type proveCodec struct {
	core, world *coder
	coders      map[coderKey]*coder
	kinds       map[string]bool // of the scope
}

type coderKey struct {
	t     reflect.Type
	class instantClass
}

// coder writes and reads the values of one type.
type coder struct {
	enc func(e *encoder, p unsafe.Pointer)
	dec func(d *decoder, p unsafe.Pointer)
}

// encoder is a state written down: shape and numbers in buf, and the instants apart, in order.
type encoder struct {
	buf   []byte
	at    []instant
	class []instantClass
	objs  []unsafe.Pointer // written already: another reference to an object is its number
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

// newProveCodec returns the codec of the states of a scope.
func newProveCodec(sc *proveScope) *proveCodec {
	k := &proveCodec{coders: make(map[coderKey]*coder), kinds: sc.kinds()}
	k.core = k.coder(reflect.TypeFor[core[proveStatus]](), begins)
	k.world = k.coder(reflect.TypeFor[proveWorld](), begins)
	return k
}

// coder returns the coder of a type. Instants have the given class where no field says otherwise.
func (k *proveCodec) coder(t reflect.Type, class instantClass) *coder {
	key := coderKey{t, class}
	if c := k.coders[key]; c != nil {
		return c
	}
	c := &coder{}
	k.coders[key] = c // before the coder is made: types refer to each other
	switch t {
	case reflect.TypeFor[instant]():
		c.enc = func(e *encoder, p unsafe.Pointer) {
			e.at, e.class = append(e.at, *(*instant)(p)), append(e.class, class)
		}
		c.dec = func(d *decoder, p unsafe.Pointer) { *(*instant)(p), d.at = d.at[0], d.at[1:] }
	case reflect.TypeFor[subject](): // always an item
		to := k.coder(reflect.TypeFor[*item](), class)
		c.enc = func(e *encoder, p unsafe.Pointer) {
			x, _ := (*(*subject)(p)).(*item)
			to.enc(e, unsafe.Pointer(&x))
		}
		c.dec = func(d *decoder, p unsafe.Pointer) {
			var x *item
			to.dec(d, unsafe.Pointer(&x))
			if x != nil {
				*(*subject)(p) = x
			}
		}
	case reflect.TypeFor[error]():
		c.enc = func(e *encoder, p unsafe.Pointer) { e.bool(*(*error)(p) != nil) }
		c.dec = func(d *decoder, p unsafe.Pointer) {
			if d.byte() != 0 {
				*(*error)(p) = errProve
			}
		}
	case reflect.TypeFor[map[cache.UID]*pod]():
		mapCoder[cache.UID, *pod](k, c, class, cmp.Compare)
	case reflect.TypeFor[map[uint64]*pod]():
		mapCoder[uint64, *pod](k, c, class, cmp.Compare)
	case reflect.TypeFor[map[string]*item]():
		mapCoder[string, *item](k, c, class, cmp.Compare)
	case reflect.TypeFor[map[string]removal]():
		mapCoder[string, removal](k, c, class, cmp.Compare)
	case reflect.TypeFor[map[reportKey]expectation](), reflect.TypeFor[retold]():
		mapCoder[reportKey, expectation](k, c, class, reportKey.compare)
	case reflect.TypeFor[map[*pod]*flight]():
		mapCoder[*pod, *flight](k, c, class, byUID)
	case reflect.TypeFor[map[*pod]struct{}]():
		mapCoder[*pod, struct{}](k, c, class, byUID)
	default:
		k.kindCoder(c, t, class)
	}
	return c
}

func (e *encoder) bool(b bool) {
	if b {
		e.buf = append(e.buf, 1)
		return
	}
	e.buf = append(e.buf, 0)
}

func (k *proveCodec) kindCoder(c *coder, t reflect.Type, class instantClass) {
	switch t.Kind() {
	case reflect.Bool, reflect.Uint8:
		c.enc = func(e *encoder, p unsafe.Pointer) { e.buf = append(e.buf, *(*byte)(p)) }
		c.dec = func(d *decoder, p unsafe.Pointer) { *(*byte)(p) = d.byte() }
	case reflect.Int:
		intCoder[int](c)
	case reflect.Int32:
		intCoder[int32](c)
	case reflect.Int64:
		intCoder[int64](c)
	case reflect.Uint64:
		intCoder[uint64](c)
	case reflect.String:
		c.enc = func(e *encoder, p unsafe.Pointer) { e.buf = append(e.buf, wordNumber(*(*string)(p))) }
		c.dec = func(d *decoder, p unsafe.Pointer) { *(*string)(p) = proveWords[d.byte()] }
	case reflect.Struct:
		k.structCoder(c, t, class)
	case reflect.Pointer:
		k.pointerCoder(c, t, class)
	case reflect.Slice:
		k.sliceCoder(c, t, class)
	case reflect.Array:
		elem, size, n := k.coder(t.Elem(), class), t.Elem().Size(), t.Len()
		c.enc = func(e *encoder, p unsafe.Pointer) {
			for i := range n {
				elem.enc(e, unsafe.Add(p, uintptr(i)*size))
			}
		}
		c.dec = func(d *decoder, p unsafe.Pointer) {
			for i := range n {
				elem.dec(d, unsafe.Add(p, uintptr(i)*size))
			}
		}
	default:
		panic(fmt.Sprintf("%v cannot be part of a state: teach kindCoder, or give its field the tag \"-\"", t))
	}
}

// intCoder codes a number of any width.
func intCoder[T int | int32 | int64 | uint64](c *coder) {
	c.enc = func(e *encoder, p unsafe.Pointer) { e.buf = binary.AppendVarint(e.buf, int64(*(*T)(p))) }
	c.dec = func(d *decoder, p unsafe.Pointer) {
		n, size := binary.Varint(d.buf)
		*(*T)(p), d.buf = T(n), d.buf[size:]
	}
}

// proveWords are the strings that occur in states.
var proveWords = []string{"", "p", "q", "a", "b"}

func wordNumber(s string) byte {
	i := slices.Index(proveWords, s)
	if i < 0 {
		panic(fmt.Sprintf("%q is none of the words of a search", s))
	}
	return byte(i)
}

func (k *proveCodec) structCoder(c *coder, t reflect.Type, class instantClass) {
	type part struct {
		*coder
		at uintptr
	}
	var parts []part
	for i := range t.NumField() {
		f := t.Field(i)
		in, ok := classOf(f, class, k.kinds)
		if ok {
			parts = append(parts, part{k.coder(f.Type, in), f.Offset})
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

// pointerCoder writes an object once, and then its number. Zero is nil.
func (k *proveCodec) pointerCoder(c *coder, t reflect.Type, class instantClass) {
	elem := k.coder(t.Elem(), class)
	c.enc = func(e *encoder, p unsafe.Pointer) {
		to := *(*unsafe.Pointer)(p)
		i := slices.Index(e.objs, to)
		switch {
		case to == nil:
			e.buf = append(e.buf, 0)
		case i >= 0:
			e.buf = append(e.buf, byte(i+1))
		default:
			e.objs, e.buf = append(e.objs, to), append(e.buf, 255)
			elem.enc(e, to)
		}
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

// sliceCoder does not tell nil from empty.
func (k *proveCodec) sliceCoder(c *coder, t reflect.Type, class instantClass) {
	elem, size := k.coder(t.Elem(), class), t.Elem().Size()
	c.enc = func(e *encoder, p unsafe.Pointer) {
		s := *(*[]struct{})(p) // of anything: only the header counts
		e.buf = append(e.buf, byte(len(s)))
		for i := range len(s) {
			elem.enc(e, unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), uintptr(i)*size))
		}
	}
	c.dec = func(d *decoder, p unsafe.Pointer) {
		n := int(d.byte())
		if n == 0 {
			return
		}
		s := reflect.MakeSlice(t, n, n)
		reflect.NewAt(t, p).Elem().Set(s)
		for i := range n {
			elem.dec(d, unsafe.Add(s.UnsafePointer(), uintptr(i)*size))
		}
	}
}

// mapCoder writes a map in the order of its keys, and reads it as a map even if empty.
func mapCoder[K comparable, V any](k *proveCodec, c *coder, class instantClass, order func(a, b K) int) {
	key, value := k.coder(reflect.TypeFor[K](), class), k.coder(reflect.TypeFor[V](), class)
	c.enc = func(e *encoder, p unsafe.Pointer) {
		m := *(*map[K]V)(p)
		e.buf = append(e.buf, byte(len(m)))
		if len(m) == 0 {
			return
		}
		for _, key1 := range slices.SortedFunc(maps.Keys(m), order) {
			v := m[key1]
			key.enc(e, unsafe.Pointer(&key1))
			value.enc(e, unsafe.Pointer(&v))
		}
	}
	c.dec = func(d *decoder, p unsafe.Pointer) {
		n := int(d.byte())
		m := make(map[K]V, n)
		*(*map[K]V)(p) = m
		for range n {
			var key1 K
			var v V
			key.dec(d, unsafe.Pointer(&key1))
			value.dec(d, unsafe.Pointer(&v))
			m[key1] = v
		}
	}
}

// proveForm is the memory in which states are written and read, used again.
type proveForm struct {
	encoder
	quotient
}

// write encodes the core and the world.
func (v *prover) write() {
	e := &v.form.encoder
	e.buf, e.at, e.class, e.objs = e.buf[:0], e.at[:0], e.class[:0], e.objs[:0]
	v.codec.core.enc(e, unsafe.Pointer(v.core))
	v.codec.world.enc(e, unsafe.Pointer(&v.w))
}

// join returns what was encoded, with the given instants.
func (v *prover) join(at []instant) []byte {
	e := &v.form.encoder
	b := binary.AppendUvarint(make([]byte, 0, len(e.buf)+5*len(at)+2), uint64(len(e.buf)))
	b = append(b, e.buf...)
	for _, i := range at {
		if i == never {
			i = -1
		}
		b = binary.AppendVarint(b, int64(i/proveUnit))
		b = binary.AppendVarint(b, int64(i%proveUnit))
	}
	return b
}

// load makes a written state the present one.
func (v *prover) load(b []byte) {
	n, size := binary.Uvarint(b)
	b = b[size:]
	d := decoder{buf: b[:n], at: v.form.out[:0]}
	for b = b[n:]; len(b) > 0; {
		place, size := binary.Varint(b)
		off, more := binary.Varint(b[size:])
		b = b[size+more:]
		at := instant(place)*proveUnit + instant(off)
		if at == -1 {
			at = never
		}
		d.at = append(d.at, at)
	}
	v.form.out = d.at
	c := v.template
	v.core = &c
	v.codec.core.dec(&d, unsafe.Pointer(v.core))
	v.w = proveWorld{}
	v.codec.world.dec(&d, unsafe.Pointer(&v.w))
	v.fillLanes()
	v.unpack()
	v.core.cache = v.cfg.Cache
}

// fillLanes fills the lanes from the records of the pods. What a limiter has seen of the times of
// reads is no part of a state: a search knows no times.
func (v *prover) fillLanes() {
	c := v.core
	c.reads.lanes = newReads(v.cfg.InspectWorkers).lanes
	pods := slices.SortedFunc(maps.Values(c.pods), byUID)
	for _, p := range pods {
		if p.queued {
			c.reads.lanes[p.lane()].push(waiter[*pod]{p, p.since, p.retry.step})
		}
	}
	began := slices.SortedFunc(maps.Values(c.reads.inflight), func(a, b *flight) int { return cmp.Compare(a.started, b.started) })
	for _, f := range began {
		c.reads.lanes[f.lane].begin(f.started)
	}
	v.forgetTimes()
}

// forgetTimes takes out of the limiters what they have seen of times.
func (v *prover) forgetTimes() {
	for i := range v.core.reads.lanes {
		l := &v.core.reads.lanes[i]
		l.limiter = limiter{workers: l.workers, begins: l.begins, quiet: v.w.now}
	}
}

// pack takes the cache into the world.
func (v *prover) pack() {
	w, c := &v.w, v.cfg.Cache
	w.entries, w.gone, w.global = nil, nil, 0
	slices.SortFunc(w.reads, func(a, b *proveRead) int { return strings.Compare(string(a.uid), string(b.uid)) })
	if g := c.Global(); !g.IsZero() {
		w.global = v.clk.instant(g)
	}
	held := c.UIDs()
	for _, uid := range held {
		s, err := c.Get(uid)
		w.entries = append(w.entries, proveEntry{uid, inIDs(*s), *s != nil, err != nil, v.asOf(uid)})
	}
	for _, uid := range []cache.UID{"p", "q"} {
		if at := v.asOf(uid); at > w.global && !slices.Contains(held, uid) && v.mayBegin(w.global, at) {
			w.gone = append(w.gone, proveTomb{uid, at})
		}
	}
}

// unpack makes a real cache of what the world has of it.
func (v *prover) unpack() {
	w, c := &v.w, cache.New[proveStatus](nil)
	if w.global != 0 {
		c.Advance(v.clk.time(w.global))
	}
	for i := range w.entries {
		e := &w.entries[i]
		if e.status {
			s := proveStatus(slices.Clone(e.items))
			c.Set(e.uid, &s, nil, v.clk.time(e.at))
		}
		if e.failed {
			c.Set(e.uid, nil, errProve, v.clk.time(e.at))
		}
	}
	for _, t := range w.gone {
		c.Delete(t.uid, v.clk.time(t.at))
	}
	if w.floor != 0 {
		c.Prune(v.clk.time(w.floor))
	}
	v.cfg.Cache = c
	v.core.ticked, v.core.pruned = w.now, w.now
	v.exec.counted = counters{}
	v.exec.mistakes, v.exec.overflowed, v.exec.refused = 0, false, nil
	v.begun, v.views, v.wrong, v.ticked = v.begun[:0], v.views[:0], "", false
	v.remember()
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

// chain is a list of elements that hold their neighbours themselves: no operation allocates.
type chain[T any, E element[T]] struct {
	first, last *T
	n           int
}

// neighbours are an element's in its chain, nil at the ends. Only the chain writes them.
type neighbours[T any] struct{ prev, next *T }

func (n *neighbours[T]) beside() *neighbours[T] { return n }

// element is a pointer to a struct that embeds its neighbours.
type element[T any] interface {
	*T
	beside() *neighbours[T]
}

// put inserts x behind another element, nil for the first place.
func (c *chain[T, E]) put(x, after *T) {
	next := c.first
	if after != nil {
		next = E(after).beside().next
	}
	c.join(after, x)
	c.join(x, next)
	c.n++
}

func (c *chain[T, E]) remove(x *T) {
	n := E(x).beside()
	c.join(n.prev, n.next)
	*n = neighbours[T]{}
	c.n--
}

// join makes two elements neighbours, nil for the end of the chain on either side.
func (c *chain[T, E]) join(a, b *T) {
	if a == nil {
		c.first = b
	} else {
		E(a).beside().next = b
	}
	if b == nil {
		c.last = a
	} else {
		E(b).beside().prev = a
	}
}

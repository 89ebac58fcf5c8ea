// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package changes_test

import (
	"fmt"
	"time"

	"github.com/evented-pleg/evented-pleg/embed/changes"
)

// volumes is what a loop looks at.
type volumes struct {
	changes.RWMutex
	mounted map[string]bool
}

func (v *volumes) mount(name string) {
	v.Lock() // counts a change
	defer v.Unlock()
	v.mounted[name] = true
}

func (v *volumes) count() int {
	v.RLock() // counts nothing
	defer v.RUnlock()
	return len(v.mounted)
}

// A loop makes its round only if something has changed that it looks at, or after ten seconds.
func ExampleRounds() {
	v := &volumes{mounted: make(map[string]bool)}
	rounds := changes.NewRounds(changes.Longest, changes.Of(v))
	now := time.Now()
	round := func() {
		now = now.Add(time.Second)
		if !rounds.Due(now) {
			fmt.Println("left out")
			return
		}
		fmt.Println("a round over", v.count(), "volumes")
		rounds.Done()
	}
	round()
	round()
	v.mount("data")
	round()
	now = now.Add(changes.Longest)
	round()
	// Output:
	// a round over 0 volumes
	// left out
	// a round over 1 volumes
	// a round over 1 volumes
}

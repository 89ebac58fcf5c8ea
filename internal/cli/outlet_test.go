// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// paused is an output that nobody reads until read is closed.
type paused struct {
	read chan struct{}
	took []byte
}

func (p *paused) Write(b []byte) (int, error) {
	<-p.read
	p.took = append(p.took, b...)
	return len(b), nil
}

// TestOutletWaits: as long as nobody asks the program to end, and a little longer.
func TestOutletWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &paused{read: make(chan struct{})}
		asked := make(chan struct{})
		o := NewOutlet(slow)
		o.asked = asked
		time.AfterFunc(time.Hour, func() { close(asked) })
		time.AfterFunc(time.Hour+unreadFor-1, func() { close(slow.read) })
		if n, err := o.Write([]byte("late")); n != 4 || err != nil || string(slow.took) != "late" {
			t.Errorf("%d, %v, %q", n, err, slow.took)
		}
	})
}

// TestOutletIsLeft: a write that nobody takes ends after the program was asked to end, with all
// that wait for it; later ones are not tried.
func TestOutletIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := &paused{read: make(chan struct{})}
		asked := make(chan struct{})
		o := NewOutlet(never)
		o.asked = asked
		time.AfterFunc(time.Hour, func() { close(asked) })
		failed := make(chan error)
		began := time.Now()
		text := []byte("first")
		for range 3 {
			go func() {
				_, err := o.Write(text)
				failed <- err
			}()
		}
		for range 3 {
			if err := <-failed; !errors.Is(err, ErrUnread) || time.Since(began) != time.Hour+unreadFor {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		copy(text, "other")
		close(never.read)
		synctest.Wait()
		_, err := o.Write(text)
		if !errors.Is(err, ErrUnread) || string(never.took) != "first" {
			t.Errorf("%v, written %q", err, never.took)
		}
	})
}

// TestOutletEnds with the cause that its owner gives, the first one.
func TestOutletEnds(t *testing.T) {
	o := NewOutlet(io.Discard)
	full := errors.New("full")
	o.End(full)
	o.End(nil)
	if _, err := o.Write(nil); err != full || o.Usable().Err() == nil {
		t.Error(err)
	}
}

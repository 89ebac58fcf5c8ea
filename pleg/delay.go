// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "time"

// ladder is a delay that doubles: each step is as long as all before it. The zero ladder has not
// been climbed, and delays nothing.
type ladder struct {
	step time.Duration // the last delay; 0 at the foot
	end  instant       // when it is over
}

// climb begins a delay, after a read that began at the given time: the next longer one, within
// least and most, or the same again if that read had not waited for the end of the last. Lists and
// waiters come when others want them, and a dozen within some milliseconds must not put the next
// read off by minutes. It returns the end.
func (l *ladder) climb(began, now instant, least, most time.Duration) instant {
	switch {
	case l.step == 0:
		l.step = least
	case began >= l.end:
		l.step = doubled(l.step, most)
	}
	l.end = now.add(l.step)
	return l.end
}

// climbed says that something is delayed.
func (l *ladder) climbed() bool { return l.step != 0 }

// delays are when a pod is read again without anybody wanting it.
type delays struct {
	notYet  instant // not before this: the end of one of the ladders, or at once
	reread  ladder  // while the pod is unsure
	going   ladder  // while it is looked whether the pod has gone
	backoff ladder  // after failures, from the first to the next success
}

// stir has nothing wait any more, because something has changed: whatever is unsure is read at
// once. Failures still delay each other.
func (d *delays) stir() { d.notYet, d.reread = 0, ladder{} }

// settle ends the delays of a pod of which nothing is in doubt.
func (d *delays) settle() { d.reread, d.backoff = ladder{}, ladder{} }

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

// sighting is when looks have shown an ID, and when they have not. Runtimes forget their containers
// for a moment, above all after a restart: two looks in a row must miss an ID that lives before it
// is taken to be gone.
//
// Looks overlap, and of two that do nobody knows which looked last. So a look without the ID counts
// for nothing if a look that has shown the ID has ended meanwhile, and the second look without the
// ID must begin after the end of the first.
type sighting struct {
	// seen is the end of the last look that has shown the ID.
	seen instant `prove:"marks"`

	// doubted is when the first look ended that did not show the ID although it lives, as nobody
	// has reported its end; zero if the last look showed the ID.
	doubted instant `prove:"marks"`
}

// span is the time of a look at the runtime.
type span struct {
	began instant
	ended instant
}

// sight notes the end of a look that has shown the ID.
func (s *sighting) sight(ended instant) {
	s.seen = ended
	s.trust()
}

// trust ends the doubt about the ID.
func (s *sighting) trust() { s.doubted = 0 }

// missing notes a look without the ID, and reports whether the ID may be there all the same. Seen
// is the end of the last look that has shown all IDs of the pod.
func (s *sighting) missing(at span, seen instant) (perhaps bool) {
	switch {
	case at.began < max(s.seen, seen):
		return true
	case s.doubted == 0:
		s.doubted = at.ended
		return true
	}
	return at.began < s.doubted
}

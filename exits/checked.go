// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Bounds of a ledger. They are far more than a node's containers need, and so little that a forged
// or damaged file costs a start at most a few times maxLedger of memory. A reporter writes no
// ledger beyond them.
const (
	// maxLedger bounds the size of the file, in bytes.
	maxLedger = 16 << 20
	// maxValues bounds the number of the values in it.
	maxValues = 1 << 18
	// maxEnds bounds each list of ends in it.
	maxEnds = 1 << 14
)

// list is a list in a ledger, of maxEnds entries at most.
type list[T any] []T

// UnmarshalJSON reads a list. A longer one is an error.
func (l *list[T]) UnmarshalJSON(data []byte) error {
	*l = nil
	decoder := json.NewDecoder(bytes.NewReader(data))
	begin, err := decoder.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('[') {
		return errors.New("it has something else in the place of a list")
	}
	for decoder.More() {
		if len(*l) == maxEnds {
			return tooLong(maxEnds + 1)
		}
		var entry T
		if err := decoder.Decode(&entry); err != nil {
			return err
		}
		*l = append(*l, entry)
	}
	return nil
}

// unreadable returns why an encoded ledger would not be read, nil if it would.
func unreadable(data []byte) error {
	if len(data) > maxLedger {
		return tooLarge(int64(len(data)))
	}
	if n := values(data); n > maxValues {
		return fmt.Errorf("it has %d values, more than %d", n, maxValues)
	}
	return nil
}

// unreadable returns why the encoded record would not be read, nil if it would.
func (r *record) unreadable(data []byte) error {
	if n := max(len(r.Unsent), len(r.Combined), len(r.Settling)); n > maxEnds {
		return tooLong(n)
	}
	return unreadable(data)
}

// tooLong returns the error for a list of a length.
func tooLong(length int) error {
	return fmt.Errorf("it has a list of %d ends, more than %d", length, maxEnds)
}

// tooLarge returns the error for a ledger of a size.
func tooLarge(size int64) error {
	return fmt.Errorf("it has %d bytes, more than %d", size, maxLedger)
}

// values returns the number of values in encoded JSON, about: that of the commas outside of its
// strings.
func values(data []byte) (n int) {
	inString := false
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			inString = !inString
		case '\\':
			i++ // stands in strings alone
		case ',':
			if !inString {
				n++
			}
		}
	}
	return n
}

// brief returns the error of a decoder in a few words: its own text may have all of the file.
func brief(err error) error {
	var kind *json.UnmarshalTypeError
	var date *time.ParseError
	switch {
	case errors.As(err, &kind):
		return fmt.Errorf("its field %q has a value of another type", printable(kind.Field, maxName))
	case errors.As(err, &date):
		return errors.New("it has something else in the place of a time")
	}
	return errors.New(printable(err.Error(), maxMessage))
}

// tidy drops the ends that no reporter writes, and doubles, and returns their number. The texts of
// the rest are as printable makes them.
func (r *record) tidy() (dropped int64) {
	before := len(r.Reported) + len(r.Unsent) + len(r.Settling)
	delete(r.Reported, "")
	told := make(map[toldEnd]bool)
	twice := func(e *End) bool {
		is := toldEnd{id: e.ID, kind: e.Kind, at: e.FinishedAt.UTC()}
		known := told[is] && (e.Kind == SandboxDied || !e.FinishedAt.IsZero())
		told[is] = true
		return known
	}
	r.Unsent = slices.DeleteFunc(r.Unsent, func(e End) bool {
		return !e.known() || e.Pod.Name == "" || e.Pod.Namespace == "" || twice(&e)
	})
	waits := make(map[string]bool)
	r.Settling = slices.DeleteFunc(r.Settling, func(e settlingEnd) bool {
		at, reported := r.Reported[e.ID]
		drop := !e.known() || waits[e.ID] || reported && !at.Before(e.FinishedAt) || twice(&e.End)
		waits[e.ID] = waits[e.ID] || !drop
		return drop
	})
	dropped = int64(before - len(r.Reported) - len(r.Unsent) - len(r.Settling))
	for i := range r.Unsent {
		r.Unsent[i].tidy()
	}
	for i := range r.Settling {
		r.Settling[i].tidy()
	}
	return dropped + r.tidyCombined()
}

// toldEnd identifies an end.
type toldEnd struct {
	id   string
	kind Kind
	at   time.Time // when it ended, in UTC
}

// tidyCombined is tidy for the combined ends. More than maxRecounted in all are dropped.
func (r *record) tidyCombined() (dropped int64) {
	left := int64(maxRecounted)
	counted := make(map[eventKey]bool)
	var kept list[combined]
	for _, c := range r.Combined {
		key := keyOfCombined(c.Namespace, c.Kind)
		n := min(c.Ends, left)
		if n <= 0 || c.Namespace == "" || !c.Kind.wellFormed() || counted[key] {
			n = 0
		}
		if n > 0 {
			counted[key] = true
			left -= n
			kept = append(kept, combined{Namespace: c.Namespace, Kind: c.Kind, Ends: n})
		}
		lost := max(c.Ends, 1) - n
		dropped += min(lost, math.MaxInt32) // a forged number must not overflow
	}
	r.Combined = kept
	return dropped
}

// known reports whether an end of a ledger was written by a reporter, of this version or another.
func (e *End) known() bool { return e.ID != "" && e.Kind.wellFormed() }

// wellFormed reports whether a kind can be the reason of an Event: a later version may have others.
func (k Kind) wellFormed() bool {
	const longest = 64
	for _, r := range k {
		if letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'; !letter {
			return false
		}
	}
	return k != "" && len(k) <= longest
}

// tidy bounds the texts of an end, and escapes what is not printable in them.
func (e *End) tidy() {
	inside := func(text string, limit int) string {
		quoted := literal(text, limit)
		return quoted[1 : len(quoted)-1]
	}
	e.Container = inside(e.Container, maxName)
	e.Reason = inside(e.Reason, maxReason)
	e.Message = inside(e.Message, maxMessage)
}

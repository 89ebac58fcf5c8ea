// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import "fmt"

// Check says which invariant of the record is broken, nil if none is. Now is no earlier than the
// last report. Tests call it after each step.
func (p *Pod) Check(now Time) error {
	if p.AsOf > now || p.Moved > now || p.AsOf < 0 || p.Moved < 0 {
		return fmt.Errorf("as of %d, moved %d: not within 0 and %d", p.AsOf, p.Moved, now)
	}
	names := make(map[string]bool, len(p.IDs))
	for i := range p.IDs {
		x := &p.IDs[i]
		if x.Name == "" || names[x.Name] {
			return fmt.Errorf("ID %q occurs twice, or is empty", x.Name)
		}
		names[x.Name] = true
		if err := x.check(now); err != nil {
			return fmt.Errorf("ID %s: %w", x.Name, err)
		}
	}
	return nil
}

func (x *ID) check(now Time) error {
	switch {
	case x.Seen == None && x.Claim == None:
		return fmt.Errorf("there is no evidence of it")
	case x.Seen == None && (x.Cached != None || x.Told != 0):
		return fmt.Errorf("cached %v and told %03b, but neither a read nor a call showed it", x.Cached, x.Told)
	case (x.Claim == None) != (x.At == 0) || x.At > now:
		return fmt.Errorf("claim %v at %d of %d", x.Claim, x.At, now)
	case (x.Seen == None) != (x.To == 0) || x.To > now:
		return fmt.Errorf("seen %v to %d of %d", x.Seen, x.To, now)
	case x.Claim != None && x.Claim <= x.Seen:
		return fmt.Errorf("claim %v tells nothing beyond %v", x.Claim, x.Seen)
	case x.Claim == Unknown || x.Seen > Gone || x.Claim > Gone || x.Cached > Gone:
		return fmt.Errorf("seen %v, claim %v, cached %v", x.Seen, x.Claim, x.Cached)
	case x.Cached == Gone && x.Told&Removed == 0:
		return fmt.Errorf("the cache shows it gone, and Watch was not told")
	case x.Cached == Running && x.Told == 0, x.Cached == Exited && x.Told&(Died|Removed) == 0:
		return fmt.Errorf("the cache shows it %v, and Watch was told %03b", x.Cached, x.Told)
	case x.Told >= Sync:
		return fmt.Errorf("told %b", x.Told)
	}
	return nil
}

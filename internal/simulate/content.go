// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// field is the content of an ID's status beside the phase, as a text: a version in the first tier,
// exit code, reason, limits and address in the second.
type field struct {
	ID, Text string
}

// writing is an entry of the history of an ID's content.
type writing struct {
	at   time.Time
	text string
}

// Rewrite records a new content of an ID's status from a time on. No event announces the change,
// and no list shows the content. The ID must have been recorded: without the writing, an honest
// status would look invented.
func (t *Truth) Rewrite(at time.Time, id, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[id]
	if l == nil {
		panic("simulate: content " + text + " of " + id + ", which was never recorded")
	}
	l.texts = append(l.texts, writing{at, text})
}

// contents returns every content of the ID from just before since until now.
func (l *life) contents(since time.Time) (texts []string) {
	for _, w := range l.texts {
		if w.at.Before(since) {
			texts = texts[:0]
		}
		texts = append(texts, w.text)
	}
	return texts
}

// version returns the number of the only writing with a text, -1 if there is none, or several.
func (l *life) version(text string) int {
	of := func(w writing) bool { return w.text == text }
	first := slices.IndexFunc(l.texts, of)
	if first >= 0 && slices.ContainsFunc(l.texts[first+1:], of) {
		return -1
	}
	return first
}

// CheckContent compares the content of a status, ID by ID, with the runtime's content at some
// moment from just before since until now: an honest runtime's statuses may be torn between two
// moments. CheckContent returns the difference, empty without any.
func (t *Truth) CheckContent(shown []field, since time.Time) string {
	t.refresh()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range shown {
		l := t.lives[f.ID]
		if l == nil || t.excused(f.ID) || len(l.texts) == 0 {
			continue
		}
		if texts := l.contents(since); !slices.Contains(texts, f.Text) {
			return "shows the content " + f.Text + " of " + f.ID + ", which has been " + texts[0] + " since before"
		}
	}
	return ""
}

// versions returns the number of the writing that a status shows, by ID.
func (t *Truth) versions(shown []field) map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	numbers := make(map[string]int, len(shown))
	for _, f := range shown {
		if l := t.lives[f.ID]; l != nil && !t.excused(f.ID) && len(l.texts) > 0 {
			if n := l.version(f.Text); n >= 0 {
				numbers[f.ID] = n
			}
		}
	}
	return numbers
}

// echo notes that an event of the end of an ID comes after its recovery: late, or told once more,
// and the ID may have ended once more meanwhile.
// If no read has shown the end, the event is believed for a grace, as nothing tells its age, and so
// is the content in its payload. It ends with a comparison of the runtime's times of events, which
// the generator does not make: clocks of runtimes step.
func (t *Truth) echo(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lives[id]; l != nil {
		l.echoes = true
	}
}

// echoed reports, once, whether the content of an ID may go back with a late event.
func (t *Truth) echoed(id string) (may bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lives[id]; l != nil {
		may = l.echoes && l.back.IsZero()
		l.echoes = false
	}
	return may
}

// lookContent checks that the cache's content of a pod was the runtime's at some time, and that no
// older content follows.
func (o *oracle) lookContent(uid cache.UID, p *seen) {
	shown := o.store.Fields(uid)
	if what := o.truth.CheckContent(shown, time.Time{}); what != "" {
		o.fail("invented-content", "pod %s %s", uid, what)
	}
	now := o.truth.versions(shown)
	for id, version := range now {
		if before, known := p.versions[id]; known && version < before && !o.truth.echoed(id) {
			o.fail(
				"content-back",
				"pod %s: the cache showed the content of version %d of %s, and then that of version %d",
				uid,
				before,
				id,
				version,
			)
		}
	}
	p.versions = now
}

// lookRewrites checks that the cache shows, soon after a call of the agent's own that changes
// fields alone, what the call has changed. No list shows it. The bound is that of a phase, with the
// same excuses; an item that cannot be read is not shown until it can be. The callers hold the
// mutexes of oracle and boundary.
func (o *oracle) lookRewrites(b *boundary, now time.Time) {
	for id, x := range b.prompt.rewrites {
		shown := slices.DeleteFunc(o.store.Fields(x.pod), func(f field) bool { return f.ID != id })
		if len(shown) == 0 || o.truth.CheckContent(shown, x.at.Add(1)) == "" {
			delete(b.prompt.rewrites, id)
			continue
		}
		if b.excuses(x.pod) || b.busy(x.pod, now) || b.truth.spoilt(x.pod) {
			x.excused = now
			b.prompt.rewrites[id] = x
			continue
		}
		if _, moody := o.moods[x.pod]; moody || now.Sub(b.owedSince(x)) <= b.soon(x.pod)+b.beside(now) {
			continue
		}
		delete(b.prompt.rewrites, id)
		o.fail(
			"late-content",
			"pod %s: a call of the agent's own has changed fields of %s, and %v later the cache shows those of before",
			x.pod,
			id,
			now.Sub(b.owedSince(x)),
		)
	}
}

// answered checks the content of an answer of GetNewerThan.
func (o *oracle) answered(pod cache.UID, shown []field, t time.Time) {
	if what := o.truth.CheckContent(shown, t); what != "" {
		o.fail(
			"stale-content",
			"pod %s: GetNewerThan of %s returned at %s a status that %s",
			pod,
			o.when(t),
			o.when(time.Now()),
			what,
		)
	}
}

// contentSettled checks that the cache's content is the runtime's at some moment after a time:
// every status has been read since.
func (o *oracle) contentSettled(since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, uid := range o.truth.UIDs() {
		if _, err := o.store.Get(uid); err != nil {
			continue // other checks find a lasting error
		}
		if what := o.truth.CheckContent(o.store.Fields(uid), since); what != "" {
			o.fail(
				"diverged-content",
				"pod %s: every status must have been read again, and the cache %s",
				uid,
				what,
			)
		}
	}
}

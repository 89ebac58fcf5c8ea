// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of text from the runtime, in bytes, so that a note stays below the API server's 1024.
const (
	maxName    = 128
	maxReason  = 64
	maxMessage = 256
	maxListed  = 5 // containers named in a note
)

// printable returns untrusted text in one line, at most limit bytes long. Unprintable characters,
// backslashes and invalid UTF-8 become escapes.
func printable(text string, limit int) string {
	return rewrite(text, limit, func(text string) (part string, size int) {
		if text[0] == '\\' {
			return `\\`, 1
		}
		return escapeFirst(text)
	})
}

// word returns a name from the runtime as a note has it: unchanged if it is a word of ASCII, as all
// that Kubernetes allows, else as a literal. The text is printable's, or an unchecked one.
func word(text string, limit int) string {
	special := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		usual := letter || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
		return !usual
	}
	if text == "" || len(text) > limit || strings.IndexFunc(text, special) >= 0 {
		return literal(text, limit)
	}
	return text
}

// literal returns text between quotes, which no text can leave: what is outside of the quotes of a
// note is ours. The text is printable's, or an unchecked one: a backslash begins an escape, and
// stays. At most limit bytes are between the quotes.
func literal(text string, limit int) string {
	return `"` + rewrite(text, limit, func(text string) (part string, size int) {
		switch text[0] {
		case '"':
			return `\"`, 1
		case '\\':
			next, size := utf8.DecodeRuneInString(text[1:])
			if next == utf8.RuneError || !unicode.IsPrint(next) {
				return `\\`, 1
			}
			return text[:1+size], 1 + size
		}
		return escapeFirst(text)
	}) + `"`
}

// rewrite returns text in which each part is replaced by what first returns for it, at most limit
// bytes long. A text that is cut ends in "…". First gets the rest of the text, and returns the
// replacement of its beginning, and the size of that beginning.
func rewrite(text string, limit int, first func(text string) (part string, size int)) string {
	var b strings.Builder
	whole := 0 // the parts that fit in beside the sign of a cut
	for len(text) > 0 {
		part, size := first(text)
		if b.Len()+len(part) > limit {
			return b.String()[:whole] + "…"
		}
		b.WriteString(part)
		if b.Len() <= limit-len("…") {
			whole = b.Len()
		}
		text = text[size:]
	}
	return b.String()
}

// escapeFirst returns the first character of a text, as an escape unless it is printable, and its
// size in the text.
func escapeFirst(text string) (part string, size int) {
	r, size := utf8.DecodeRuneInString(text)
	part = text[:size]
	if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
		quoted := strconv.Quote(part)
		part = quoted[1 : len(quoted)-1]
	}
	return part, size
}

// escapeJSON escapes unprintable characters in an encoded value: JSON permits characters with an
// effect on terminals. They stand in strings alone, and an escape means the same to a reader.
func escapeJSON(encoded []byte) []byte {
	special := func(r rune) bool { return !unicode.IsPrint(r) }
	if bytes.IndexFunc(encoded, special) < 0 {
		return encoded
	}
	var out []byte
	for _, r := range string(encoded) {
		if !special(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

// signals are the names of the signals that end containers.
var signals = map[int]string{
	1:  "SIGHUP",
	2:  "SIGINT",
	3:  "SIGQUIT",
	4:  "SIGILL",
	5:  "SIGTRAP",
	6:  "SIGABRT",
	7:  "SIGBUS",
	8:  "SIGFPE",
	9:  "SIGKILL",
	10: "SIGUSR1",
	11: "SIGSEGV",
	12: "SIGUSR2",
	13: "SIGPIPE",
	14: "SIGALRM",
	15: "SIGTERM",
}

// SignalName returns the name of a signal, such as SIGKILL.
func SignalName(signal int) string {
	return cmp.Or(signals[signal], "signal "+strconv.Itoa(signal))
}

// lateAfter is the age of an end from which on its note has its time: the time of the Event is
// another.
const lateAfter = time.Minute

// noteOf returns the text of the Event of an end.
func noteOf(e *End, now time.Time) string {
	if e.Kind == SandboxDied {
		return sandboxNote(e)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Container %s %s", word(e.Container, maxName), deed(e))
	if ran := e.Ran(); ran > 0 {
		fmt.Fprintf(&b, " after %s", roughly(ran))
	}
	if !e.Unshown {
		fmt.Fprintf(&b, ", attempt %d", e.Attempt)
	}
	if !e.FinishedAt.IsZero() && !e.FinishedAt.Before(e.StartedAt) && now.Sub(e.FinishedAt) > lateAfter {
		fmt.Fprintf(&b, ", at %s", e.FinishedAt.UTC().Format(time.RFC3339))
	}
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", literal(e.Message, maxMessage))
	}
	return b.String()
}

// deed returns the words for the end of the container.
func deed(e *End) string {
	code := fmt.Sprintf("exit code %d", e.ExitCode)
	if s := e.Signal(); s != 0 {
		code += ", " + SignalName(s)
	}
	switch e.Kind {
	case OOMKilled:
		// Not "at its limit": the node may have lacked memory, or a group of the pod.
		limit := ""
		if e.MemoryLimit > 0 {
			limit = ", limit " + bytesText(e.MemoryLimit)
		}
		return fmt.Sprintf("%s for lack of memory (OOMKilled, %s%s)", oomDeed(e), code, limit)
	case Completed:
		return "completed (exit code 0)"
	case Killed, Stopped:
		return fmt.Sprintf("was ended by %s (exit code %d)", SignalName(e.Signal()), e.ExitCode)
	case NotStarted:
		return fmt.Sprintf("could not be started (%s)", withReason(code, e.Reason))
	case Lost:
		if !e.CodeKnown && e.Unread {
			return "ended, and its status cannot be read"
		}
		if !e.CodeKnown && e.Again {
			return "ended and was started again before its exit code could be read"
		}
		if !e.CodeKnown {
			return "ended and was removed before its exit code could be read"
		}
		return fmt.Sprintf("ended unseen by the container runtime (%s)", withReason(code, e.Reason))
	}
	return fmt.Sprintf("failed (%s)", withReason(code, e.Reason))
}

// oomDeed returns the words for an end with the reason OOMKilled. Runtimes give this reason to a
// container in which the kernel has killed any process, at any time: the container itself may have
// ended of its own accord, or long after by SIGTERM, and its exit code tells.
func oomDeed(e *End) string {
	const process = " after a process in it was killed"
	switch {
	case !e.CodeKnown || e.ExitCode < 0:
	case e.ExitCode == 0:
		return "completed" + process
	case e.ExitCode < codeSignal:
		return "failed" + process
	case e.Signal() == sigTerm:
		return "was ended by SIGTERM" + process
	}
	return "was killed"
}

// withReason adds the runtime's reason to an exit code, unless the reason adds nothing.
func withReason(code, reason string) string {
	if reason == "" || reason == "Error" || reason == "Completed" {
		return code
	}
	return code + ", " + word(reason, maxReason)
}

func sandboxNote(e *End) string {
	listed := e.Running
	more := ""
	if len(listed) > maxListed {
		more = fmt.Sprintf(" and %d more", len(listed)-maxListed)
		listed = listed[:maxListed]
	}
	names := make([]string, len(listed))
	for i, name := range listed {
		names[i] = word(name, maxName)
	}
	return fmt.Sprintf("The pod's sandbox ended under its running containers: %s%s", strings.Join(names, ", "), more)
}

// roughly returns a duration in two units at most, such as 2.3s, 4m10s or 3d2h.
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return max(d.Round(time.Millisecond), time.Millisecond).String()
}

// bytesText returns a number of bytes in the largest binary unit without a remainder, as Kubernetes
// writes sizes.
func bytesText(n int64) string {
	unit := 0
	for unit < 4 && n >= 1024 && n%1024 == 0 {
		n /= 1024
		unit++
	}
	return strconv.FormatInt(n, 10) + []string{"", "Ki", "Mi", "Gi", "Ti"}[unit]
}

// AnnotationFinishedAt is the annotation of an Event with the time of the end, in RFC 3339.
const AnnotationFinishedAt = annotationPrefix + "finished-at"

// annotationPrefix is the prefix of the annotations of an Event.
const annotationPrefix = "exits.evented-pleg.io/"

// annotationsOf returns the exact values behind a note, for programs.
func annotationsOf(e *End) map[string]string {
	all := map[string]string{"id": printable(e.ID, maxName)}
	if e.Kind == SandboxDied {
		return prefixed(all)
	}
	if !e.Unshown {
		all["attempt"] = strconv.FormatUint(uint64(e.Attempt), 10)
	}
	if e.CodeKnown {
		all["exit-code"] = strconv.Itoa(int(e.ExitCode))
	}
	if e.Reason != "" {
		all["reason"] = e.Reason
	}
	if !e.StartedAt.IsZero() {
		all["started-at"] = e.StartedAt.UTC().Format(time.RFC3339Nano)
	}
	if !e.FinishedAt.IsZero() {
		all["finished-at"] = e.FinishedAt.UTC().Format(time.RFC3339Nano)
	}
	return prefixed(all)
}

func prefixed(all map[string]string) map[string]string {
	full := make(map[string]string, len(all))
	for name, value := range all {
		full[annotationPrefix+name] = value
	}
	return full
}

// actionOf returns the action of the Event of an end. Action, container and kind are the identity
// of a series, so a count has only equal exit codes.
func actionOf(e *End) string {
	switch {
	case e.Kind == SandboxDied:
		return "LoseSandbox"
	case !e.CodeKnown:
		return "End"
	}
	return "ExitWithCode" + strconv.Itoa(int(e.ExitCode))
}

// sortedNames returns names in order, each once.
func sortedNames(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// flushNow makes the calls owed, without a goroutine.
func flushNow(t *testing.T, b *Broadcaster) {
	t.Helper()
	var limit callLimit
	defer limit.release()
	for range 100 {
		b.mu.Lock()
		j, wait := b.core.next(time.Now())
		b.mu.Unlock()
		if wait > 0 {
			return
		}
		b.perform(t.Context(), &limit, j, time.Now())
	}
	t.Fatal("it does not come to an end")
}

// FuzzEmit: for any input, the result is a valid event for the server, or a counted drop; a second
// occurrence is the same series.
func FuzzEmit(f *testing.F) {
	f.Add("Pod", "v1", "ns", "name", "uid", "spec.containers{a}", "Warning", "Reason", "Action", "note %d", "key", "value")
	f.Add("", "", "", "", "", "", "Normal", "", "", "", "", "")
	f.Add("Node", "a/b/c", "", "UPPER_case:9..-x-.", "\xff\xfe", "日本", "Normal", strings.Repeat("é", 100), strings.Repeat("x", 300), strings.Repeat("€", 600), "series.evented-pleg.io/state", "no")
	f.Add("ClusterRole", "rbac.authorization.k8s.io/v1", "", "system:node", "u", "", "Normal", "R", "A", "%s %!d(bad) %", "a/b/c", strings.Repeat("v", 9000))
	f.Add("Pod", "v1", "ns", strings.Repeat("a.", 200), "u", "", "Normal", "R\x00", "A", "\xf0\x9f\x98", "example.com/ok", "\xff")
	f.Fuzz(func(t *testing.T, kind, version, namespace, name, uid, path, typ, reason, action, note, key, value string) {
		server := eventstest.NewServer()
		b := must(New(Options{Sink: server.Sink(), NoRoster: true}))(t)
		r := b.NewSeriesRecorder(nil, controller)
		ref := &corev1.ObjectReference{Kind: kind, APIVersion: version, Namespace: namespace, Name: name, UID: types.UID(uid), FieldPath: path}
		related := &corev1.ObjectReference{Kind: name, Namespace: uid, Name: note}
		for range 3 {
			r.AnnotatedEventf(ref, related, map[string]string{key: value, "example.com/x": note}, typ, reason, action, note, 1)
			flushNow(t, b)
		}
		s := b.Stats()
		if s.Emitted != 3 || s.Emitted != s.Acknowledged+s.Unsent+s.Dropped[DropInvalid]+s.Dropped[DropRejected] {
			t.Fatalf("books: %+v", s)
		}
		good := (typ == "Normal" || typ == "Warning") && (namespace == "" || len(apivalidation.ValidateNamespaceName(cut(namespace, maxRefField), false)) == 0)
		if all := server.Events(); good && (len(all) != 1 || all[0].Series == nil) {
			t.Fatalf("stored %d, calls %+v", len(all), server.Calls())
		} else if good && (!utf8.ValidString(all[0].Note) || len(all[0].Note) > maxNote) {
			t.Fatalf("the note is %q", all[0].Note)
		}
		if !good && len(server.Events()) > 0 {
			t.Fatal("the server took something bad: the fake is too kind")
		}
	})
}

func FuzzCut(f *testing.F) {
	f.Add("héllo", 2)
	f.Add("\xff\xff\xff", 4)
	f.Add(strings.Repeat("€", 400), 1024)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(4, limit%2000)
		got := cut(s, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("cut(%q, %d) = %q", s, limit, got)
		}
		if len(s) <= limit && utf8.ValidString(s) && got != s {
			t.Fatalf("cut(%q, %d) changed it to %q", s, limit, got)
		}
		if utf8.ValidString(s) && len(s) > limit && len(got) <= limit-utf8.UTFMax {
			t.Fatalf("cut(%q, %d) left only %d bytes", s, limit, len(got))
		}
		if utf8.ValidString(s) && !strings.HasPrefix(s, got) {
			t.Fatalf("%q is no prefix of %q", got, s)
		}
	})
}

func FuzzNames(f *testing.F) {
	for i, name := range []string{"pod-a", "system:node:x", "..--..", strings.Repeat("x", 300)} {
		f.Add(name, int64(i)*1e18)
	}
	f.Fuzz(func(t *testing.T, name string, nanos int64) {
		var id seriesID
		nanos &= 1<<62 - 1
		got := eventName(name, &id, time.Unix(0, nanos))
		if errs := validation.IsDNS1123Subdomain(got); len(errs) > 0 {
			t.Fatalf("eventName(%q) = %q: %v", name, got, errs)
		}
		if later := eventName(name, &id, time.Unix(0, nanos+1)); later <= got {
			t.Fatalf("%q comes before %q, which is later", later, got)
		}
		if len(validation.IsDNS1123Subdomain(name)) == 0 && len(name) <= 228 && !strings.HasPrefix(got, name+".") {
			t.Fatalf("eventName(%q) = %q", name, got)
		}
	})
}

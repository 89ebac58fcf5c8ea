// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/events"
)

// The compared recorders: this project's by either interface, and client-go's two.
const (
	oursEvents   = "ours"
	oursRecord   = "ours by record"
	clientEvents = "client-go events"
	clientRecord = "client-go record"
)

var recorderKinds = []string{oursEvents, oursRecord, clientEvents, clientRecord}

// emitter is the Eventf of the newer interface.
type emitter func(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)

// contestant is a recorder at work.
type contestant struct {
	emit     emitter
	shutdown func()
	cancel   context.CancelFunc
}

// stop ends it in order, as a process does that gets a SIGTERM.
func (c *contestant) stop() {
	c.shutdown()
	c.cancel()
}

// startRecorder starts a recorder of a kind, without logs: client-go's write a line for each lost
// event.
func startRecorder(t *testing.T, kind string, client kubernetes.Interface, instance string) *contestant {
	t.Helper()
	quiet := klog.NewContext(context.Background(), logr.Discard())
	ctx, cancel := context.WithCancel(quiet)
	check := func(err error) {
		if err != nil {
			cancel()
			t.Fatal(err)
		}
	}
	source := corev1.EventSource{Component: controller, Host: instance}
	switch kind {
	case clientEvents:
		b := clientevents.NewBroadcaster(&clientevents.EventSinkImpl{Interface: client.EventsV1()})
		r := b.NewRecorder(scheme.Scheme, controller).WithLogger(logr.Discard())
		check(b.StartRecordingToSinkWithContext(ctx))
		return &contestant{r.Eventf, b.Shutdown, cancel}
	case clientRecord:
		b := record.NewBroadcaster(record.WithContext(ctx))
		b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
		return &contestant{
			byRecord(b.NewRecorder(scheme.Scheme, source).WithLogger(logr.Discard())),
			b.Shutdown,
			cancel,
		}
	}
	b, err := events.NewForClient(client, events.Options{Instance: instance})
	check(err)
	check(b.StartRecordingToSinkWithContext(ctx))
	c := &contestant{b.NewRecorder(scheme.Scheme, controller).Eventf, func() {
		limit, done := context.WithTimeout(ctx, 5*time.Minute)
		defer done()
		if err := b.ShutdownWithContext(limit); err != nil { // what it could not send shows in what is stored, too
			t.Log(kind, instance, err)
		}
	}, cancel}
	if kind == oursRecord {
		c.emit = byRecord(b.NewLegacyRecorder(scheme.Scheme, source))
	}
	return c
}

func byRecord(r record.EventRecorder) emitter {
	return func(regarding, _ runtime.Object, eventtype, reason, _, note string, args ...any) {
		r.Eventf(regarding, eventtype, reason, note, args...)
	}
}

// nodeClient is a client with the rights of a node, once they are in force.
func (c *cluster) nodeClient() kubernetes.Interface {
	c.t.Helper()
	admin, node := c.client(adminToken), c.client(nodeToken)
	bindNode(c.t, admin)
	eventually(c.t, "the binding should be in force", func(ctx context.Context) (bool, string) {
		_, err := node.CoreV1().Services("").List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, fmt.Sprint(err)
	})
	return node
}

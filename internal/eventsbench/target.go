// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventsbench

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/events"
)

const (
	controller     = "evented-pleg.dev/bench"
	benchNamespace = "default"
)

// target is the recorder of one node.
type target struct {
	emit func(regarding runtime.Object, eventtype, reason, action, note string, args ...any)
	// stop ends it and says what it could not send, if it knows.
	stop func(ctx context.Context) (unsent int64, err error)
	// dropped is what it admits to have dropped; nil if it does not count that.
	dropped func() map[string]int64
}

// newTarget makes the recorder of a node, over a client of its own.
func newTarget(ctx context.Context, o *Options, config *rest.Config, node string) (*target, error) {
	c := rest.CopyConfig(config)
	c.QPS, c.Burst = -1, 0
	if o.QPS > 0 {
		c.QPS, c.Burst = o.QPS, int(2*o.QPS)
	}
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	switch o.Recorder {
	case RecorderClientGo:
		ctx, cancel := context.WithCancel(ctx)
		b := clientevents.NewBroadcaster(&clientevents.EventSinkImpl{Interface: client.EventsV1()})
		if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
			cancel()
			return nil, err
		}
		r := b.NewRecorder(scheme.Scheme, controller).WithLogger(logr.Discard())
		return &target{
			emit: func(obj runtime.Object, eventtype, reason, action, note string, args ...any) {
				r.Eventf(obj, nil, eventtype, reason, action, note, args...)
			},
			stop: func(context.Context) (int64, error) {
				b.Shutdown()
				cancel()
				return 0, nil
			},
		}, nil
	case RecorderClientGoLegacy:
		b := record.NewBroadcaster(record.WithContext(ctx))
		b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
		r := b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: controller, Host: node}).WithLogger(logr.Discard())
		return &target{
			emit: func(obj runtime.Object, eventtype, reason, _, note string, args ...any) {
				r.Eventf(obj, eventtype, reason, note, args...)
			},
			stop: func(context.Context) (int64, error) {
				b.Shutdown()
				return 0, nil
			},
		}, nil
	}
	b, err := events.NewForClient(client, events.Options{Instance: node})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
		cancel()
		return nil, err
	}
	r := b.NewRecorder(scheme.Scheme, controller)
	return &target{
		emit: func(obj runtime.Object, eventtype, reason, action, note string, args ...any) {
			r.Eventf(obj, nil, eventtype, reason, action, note, args...)
		},
		stop: func(ctx context.Context) (int64, error) {
			defer cancel()
			err := b.ShutdownWithContext(ctx)
			if left, ok := errors.AsType[*events.UnsentError](err); ok {
				return left.Occurrences, nil
			}
			return 0, err
		},
		dropped: func() map[string]int64 { return b.Stats().Dropped },
	}, nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

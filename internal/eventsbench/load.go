// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventsbench

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func podRef(run, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: benchNamespace, Name: name, UID: types.UID(run + "-" + name)}
}

// checkEvery is how many occurrences of a tight loop pass between two looks at the context.
const checkEvery = 1024

// emitLoad runs the load and returns the time that was spent in the recorder's emit function.
func emitLoad(ctx context.Context, o *Options, m *meter, run string, targets []*target) time.Duration {
	switch o.Load {
	case LoadHotLoop:
		ref := podRef(run, "hot-"+run)
		begin := time.Now()
		for i := 0; i < o.Count; i += checkEvery {
			n := min(checkEvery, o.Count-i)
			for range n {
				targets[0].emit(ref, corev1.EventTypeWarning, "BackOff", "Restarting", "back-off restarting failed container %s", "app")
			}
			m.emitted.Add(int64(n))
			if ctx.Err() != nil {
				break
			}
		}
		return time.Since(begin)
	case LoadStorm:
		refs := make([]*corev1.ObjectReference, o.Count) // made before: what is measured is the recorder
		for i := range refs {
			refs[i] = podRef(run, fmt.Sprintf("storm-%s-%d", run, i))
		}
		begin := time.Now()
		for i, ref := range refs {
			targets[0].emit(ref, corev1.EventTypeWarning, "FailedMount", "Mounting", "volume %d is not there", i)
			m.emitted.Add(1)
			if i%checkEvery == 0 && ctx.Err() != nil {
				break
			}
		}
		return time.Since(begin)
	}
	return crashLoops(ctx, o, m, run, targets)
}

// crashLoops is what kubelets say of pods that crash: four events a round.
func crashLoops(ctx context.Context, o *Options, m *meter, run string, targets []*target) (spent time.Duration) {
	refs := make([][]*corev1.ObjectReference, len(targets))
	for n := range targets {
		for p := range o.Pods {
			ref := podRef(run, fmt.Sprintf("crash-%s-%d-%d", run, n, p))
			ref.FieldPath = "spec.containers{app}"
			refs[n] = append(refs[n], ref)
		}
	}
	tick := time.NewTicker(o.Period)
	defer tick.Stop()
	for end := time.Now().Add(o.Duration); time.Now().Before(end); {
		begin := time.Now()
		for n, t := range targets {
			for _, ref := range refs[n] {
				t.emit(ref, corev1.EventTypeNormal, "Pulled", "Pulling", "image %q is already present on the machine", "app:1")
				t.emit(ref, corev1.EventTypeNormal, "Created", "Creating", "created container %s", "app")
				t.emit(ref, corev1.EventTypeNormal, "Started", "Starting", "started container %s", "app")
				t.emit(ref, corev1.EventTypeWarning, "BackOff", "Restarting", "back-off restarting failed container %s", "app")
				m.emitted.Add(4)
			}
		}
		spent += time.Since(begin)
		select {
		case <-ctx.Done():
			return spent
		case <-tick.C:
		}
	}
	return spent
}

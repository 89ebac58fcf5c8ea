// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
)

// podsAPI is the API of the node's pods.
func (w *World) podsAPI() clientcorev1.PodInterface { return w.api.CoreV1().Pods("default") }

// create binds a pod to the node.
func (w *World) create(p *corev1.Pod) {
	p = p.DeepCopy()
	p.UID = ""
	p.Spec.NodeName = standalone.NodeName
	p.Spec.AutomountServiceAccountToken = new(false)
	made := must(w.podsAPI().Create(w.ctx, p, metav1.CreateOptions{}))
	w.uids[string(made.UID)] = p.Name
}

// erase deletes pods and waits for their end.
func (w *World) erase(names ...string) {
	for _, name := range names {
		if err := w.podsAPI().Delete(w.ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			do(err)
		}
	}
	w.eventually(patience, func() {
		for _, p := range must(w.podsAPI().List(w.ctx, metav1.ListOptions{})).Items {
			if slices.Contains(names, p.Name) {
				fail("%s is still there", p.Name)
			}
		}
	})
}

// resize changes the CPU of running containers twice; nothing may restart, and the status must show
// the new resources.
func resize(w *World) {
	if w.Variant.Runtime == "" {
		fail("a kubelet that makes no cgroups does not resize: %w", errors.ErrUnsupported)
	}
	all := w.batch("one-resized", 5)
	w.putAll(all, cpu("100m"))
	w.await(ready, all...)
	for _, want := range []string{"200m", "50m"} {
		patch := fmt.Sprintf(
			`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%[1]q},"limits":{"cpu":%[1]q}}}]}}`,
			want,
		)
		for _, name := range all {
			must(
				w.podsAPI().
					Patch(w.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize"),
			)
		}
		start := time.Now()
		w.await(func(s corev1.PodStatus) error {
			c := s.ContainerStatuses[0]
			if c.RestartCount != 0 {
				return fmt.Errorf("restarted %d times", c.RestartCount)
			}
			if c.Resources == nil || c.Resources.Limits.Cpu().String() != want {
				return fmt.Errorf("resources %v, want %s", c.Resources, want)
			}
			for _, condition := range s.Conditions {
				if strings.HasPrefix(string(condition.Type), "PodResize") {
					return fmt.Errorf("%s: %s %s", condition.Type, condition.Reason, condition.Message)
				}
			}
			return nil
		}, all...)
		if took := time.Since(start); took > time.Minute {
			fail("to %s: took %v: it waited for a periodic sync", want, took.Round(time.Second))
		}
	}
	w.remove(all...)
}

// sameName deletes a pod and makes a pod of its name right after its end.
func sameName(w *World) {
	name := w.batch("one-again", 1)[0]
	for i := range 15 {
		w.put(name)
		if i%3 == 0 {
			w.await(ready, name)
		} else {
			w.sleep(time.Duration(i) * 30 * time.Millisecond)
		}
		w.remove(name)
	}
}

// streamEvents looks for the Events of the runtime's restarts. Stock kubelets send none.
func streamEvents(w *World) {
	if w.Variant.Ours {
		w.nodeEvents("ContainerEventStreamLost", "ContainerEventStreamRestored")
	}
}

// nodeEvents waits until Events with these reasons are on the node.
func (w *World) nodeEvents(reasons ...string) {
	w.eventually(patience, func() {
		missing := slices.Clone(reasons)
		for _, e := range must(w.api.CoreV1().Events("").List(w.ctx, metav1.ListOptions{})).Items {
			if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == standalone.NodeName {
				missing = slices.DeleteFunc(missing, func(r string) bool { return r == e.Reason })
			}
		}
		if len(missing) > 0 {
			fail("no Events on the node with the reasons %v", missing)
		}
	})
}

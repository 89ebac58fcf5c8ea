// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// collected bounds the wait for a kubelet's garbage collection, which comes once a minute.
const collected = 4 * time.Minute

// stranger has a container unknown to the kubelet and without a log path, beside a pod for which
// the kubelet pulls the image. A kubelet stops and removes the container and, because it looks for
// logs by the pattern "" + "*", every file of its own working directory
// (kubernetes/kubernetes#107717).
func stranger(w *World) {
	name := w.batch("one-beside", 1)[0]
	w.put(name)
	w.await(ready, name)
	client := must(crikit.Dial(crikit.Options{
		Endpoint: "unix://" + w.runtime.socket(), Namespace: "default", CgroupParent: w.cgroup, Image: Image,
	}))
	defer client.Close()
	uid := w.batch("stranger", 1)[0]
	pod := must(client.RunPod(w.ctx, uid, uid, 0))
	id := must(client.Create(w.ctx, pod, crikit.Spec{Name: "main", Command: "/tool", Args: []string{"pause"}}))
	unstarted := client.Start(w.ctx, id) // the kubelet may have ended the stranger before, and removes it either way
	w.eventually(collected, func() {
		_, err := client.ContainerStatus(w.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if !crikit.Gone(err) {
			fail("container %s, which the kubelet does not know, is still there (%v)", id, errors.Join(err, unstarted))
		}
	})
	w.remove(name)
}

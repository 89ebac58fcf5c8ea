// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// forbidden is the annotation or the taint of nodes that take no load.
	forbidden = "evented-pleg.io/no-load"
	// gate keeps a pod from the scheduler until this program has given the pod a node. If this
	// program is killed, gated pods never start.
	gate    = "evented-pleg.io/node"
	appName = "pleg-bench-fleet-run"
	// socketAnnotation is kubeadm's, on nodes: the socket of the kubelet's runtime.
	socketAnnotation = "kubeadm.alpha.kubernetes.io/cri-socket"

	// stateVariable names the folder in which pleg-bench records its runs, for those after them.
	stateVariable = "PLEG_BENCH_STATE"

	// startIn bounds the time from a pod's node to its start: scheduling and the image.
	startIn = 2 * time.Minute
	// aroundLoad bounds the time of a run besides its load: making pods, comparing, removing.
	aroundLoad = 90 * time.Second
	// terminateIn bounds a run's removal of its pods.
	terminateIn = 60 * time.Second
	// keepFor is the time after which Kubernetes removes a finished Job left by this program.
	keepFor = 10 * time.Minute
)

// socketPath returns the path of an endpoint, in one form for /run and /var/run.
func socketPath(endpoint string) string {
	p := path.Clean(strings.TrimPrefix(endpoint, "unix://"))
	if rest, ok := strings.CutPrefix(p, "/var/run/"); ok {
		return "/run/" + rest
	}
	return p
}

// choose returns the names of the nodes for a load on the endpoint, and the others.
func choose(nodes []core.Node, endpoint string) (chosen []string, left []NodeReason) {
	for _, n := range nodes {
		reason := ""
		for _, taint := range n.Spec.Taints {
			if taint.Key == forbidden || taint.Effect != core.TaintEffectPreferNoSchedule {
				reason = "taint " + taint.ToString()
			}
		}
		if v, ok := n.Annotations[forbidden]; ok && v != "false" {
			reason = "annotation " + forbidden
		}
		if ready, _ := readiness(&n); !ready {
			reason = cmp.Or(reason, "not ready")
		}
		if endpoint != "" && socketPath(n.Annotations[socketAnnotation]) == socketPath(endpoint) {
			reason = "the endpoint is the kubelet's runtime, by the annotation " + socketAnnotation
		}
		if reason != "" {
			left = append(left, NodeReason{n.Name, reason})
		} else {
			chosen = append(chosen, n.Name)
		}
	}
	slices.Sort(chosen)
	return chosen, left
}

// readiness reports whether a node is ready, and the time of the last change of its readiness.
func readiness(n *core.Node) (ready bool, since time.Time) {
	for _, c := range n.Status.Conditions {
		if c.Type == core.NodeReady {
			return c.Status == core.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// job returns an Indexed Job with a pod for each of some nodes. Each pod is gated until turn gives
// the pod its node: spread constraints count no finished pods, and would use a node twice.
func (o *runOptions) job(nodes int) *batch.Job {
	labels := map[string]string{"app.kubernetes.io/name": appName}
	container := core.Container{
		Name:  "run",
		Image: o.jobImage,
		Args:  o.args(),
		Resources: core.ResourceRequirements{
			Requests: core.ResourceList{
				core.ResourceCPU:    resource.MustParse("100m"),
				core.ResourceMemory: resource.MustParse("64Mi"),
			},
			Limits: core.ResourceList{core.ResourceMemory: resource.MustParse("512Mi")},
		},
		SecurityContext: &core.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &core.Capabilities{Drop: []core.Capability{"ALL"}},
		},
	}
	spec := core.PodSpec{
		RestartPolicy:                 core.RestartPolicyNever,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		DNSPolicy:                     core.DNSDefault,
		TerminationGracePeriodSeconds: new(int64(terminateIn.Seconds())),
		SchedulingGates:               []core.PodSchedulingGate{{Name: gate}},
		SecurityContext: &core.PodSecurityContext{
			RunAsNonRoot:   new(true),
			RunAsUser:      new(int64(65532)),
			SeccompProfile: &core.SeccompProfile{Type: core.SeccompProfileTypeRuntimeDefault},
		},
	}
	mount := func(source core.VolumeSource, at core.VolumeMount) {
		spec.Volumes = append(spec.Volumes, core.Volume{Name: at.Name, VolumeSource: source})
		container.VolumeMounts = append(container.VolumeMounts, at)
	}
	empty := core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{}}
	mount(empty, core.VolumeMount{Name: "tmp", MountPath: "/tmp"})
	if o.endpoint != "" {
		// The socket and the logs are root's.
		spec.SecurityContext.RunAsNonRoot = nil
		spec.SecurityContext.RunAsUser = new(int64(0))
		spec.SecurityContext.RunAsGroup = new(int64(0))
		host := func(kind core.HostPathType, at core.VolumeMount) {
			folder := core.HostPathVolumeSource{Path: at.MountPath, Type: &kind}
			mount(core.VolumeSource{HostPath: &folder}, at)
		}
		sockets := path.Dir(strings.TrimPrefix(o.endpoint, "unix://"))
		host(core.HostPathDirectory, core.VolumeMount{Name: "cri", MountPath: sockets, ReadOnly: true})
		host(core.HostPathDirectoryOrCreate, core.VolumeMount{Name: "logs", MountPath: o.logDirectory})
		state := core.EnvVar{Name: stateVariable, Value: path.Join(o.logDirectory, "state")}
		container.Env = append(container.Env, state)
	}
	spec.Containers = []core.Container{container}
	return &batch.Job{
		TypeMeta: meta.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: meta.ObjectMeta{
			GenerateName: "pleg-bench-",
			Namespace:    o.namespace,
			Labels:       labels,
		},
		Spec: batch.JobSpec{
			CompletionMode:          new(batch.IndexedCompletion),
			Completions:             new(int32(nodes)),
			Parallelism:             new(int32(min(o.atOnce, nodes))),
			BackoffLimitPerIndex:    new(int32(0)),
			ActiveDeadlineSeconds:   new(int64(o.deadline(nodes).Seconds())),
			TTLSecondsAfterFinished: new(int32(keepFor.Seconds())),
			Template: core.PodTemplateSpec{
				ObjectMeta: meta.ObjectMeta{Labels: labels},
				Spec:       spec,
			},
		},
	}
}

// args are those of `pleg-bench run` in each pod.
func (o *runOptions) args() []string {
	args := []string{
		"run",
		"--output=json",
		fmt.Sprintf("--pods=%d", o.pods),
		fmt.Sprintf("--containers=%d", o.containers),
		fmt.Sprintf("--rate=%g", o.rate),
		fmt.Sprintf("--duration=%s", o.duration),
	}
	if o.endpoint != "" {
		args = append(args,
			"--endpoint="+o.endpoint,
			"--image="+o.image,
			"--log-directory="+o.logDirectory,
		)
	}
	return append(args, o.runArgs...)
}

// deadline is when Kubernetes ends the Job, however this program ends.
func (o *runOptions) deadline(nodes int) time.Duration {
	turns := (nodes + o.atOnce - 1) / o.atOnce
	return time.Duration(turns)*(o.duration+aroundLoad+startIn) + time.Minute
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// grace is the grace period of all pods.
const grace = 2 * time.Second

// Image is the only image of all pods.
const Image = "example.local/tool:1"

// pod returns a static pod of containers that run until stopped, unless changed by change. Its UID
// is its name, so that removing and putting the manifest keeps the UID.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: corev1.PodSpec{
			HostNetwork:                   true,
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64(grace.Seconds())),
			Containers:                    []corev1.Container{container("main", "pause")},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func container(name string, args ...string) corev1.Container {
	return corev1.Container{
		Name:                   name,
		Image:                  Image,
		ImagePullPolicy:        corev1.PullIfNotPresent,
		Command:                append([]string{"/tool"}, args...),
		TerminationMessagePath: "/dev/termination-log",
		SecurityContext:        &corev1.SecurityContext{Privileged: new(true)}, // see unprivileged
	}
}

// unprivileged takes the privileges from the pod's containers. They have them because with a runc
// without seccomp containerd runs a sandbox only of a pod with a privileged container: for others a
// kubelet asks for the runtime's profile, which CRI-O then leaves out. And a privileged container
// in CRI-O needs more than some machines allow.
func unprivileged(p *corev1.Pod) {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].SecurityContext = nil
		}
	}
}

// runs gives the pod's main container a command.
func runs(args ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Command = append([]string{"/tool"}, args...) }
}

// once has no container of the pod restarted.
func once(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }

// sidecar gives the pod a restartable init container.
func sidecar(args ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := container("sidecar", args...)
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

// initialized gives the pod an init container of a moment.
func initialized(p *corev1.Pod) {
	p.Spec.InitContainers = append(p.Spec.InitContainers, container("init", "sleep", "500ms"))
}

// execs is a command of a probe or a hook.
func execs(args ...string) *corev1.ExecAction {
	return &corev1.ExecAction{Command: append([]string{"/tool"}, args...)}
}

// probed gives the main container successful probes and hooks.
func probed(p *corev1.Pod) {
	c := &p.Spec.Containers[0]
	good := execs("exit", "0")
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: good}, PeriodSeconds: 1}
	c.StartupProbe = probe
	c.ReadinessProbe = probe
	c.LivenessProbe = probe
	c.Lifecycle = &corev1.Lifecycle{
		PostStart: &corev1.LifecycleHandler{Exec: good},
		PreStop:   &corev1.LifecycleHandler{Exec: good},
	}
}

// containers gives the pod more containers, up to n.
func containers(n int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i := len(p.Spec.Containers); i < n; i++ {
			p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprintf("more-%d", i), "pause"))
		}
	}
}

// volumes gives the pod n volumes of its own, which its first container mounts.
func volumes(n int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i := range n {
			name := fmt.Sprintf("volume-%d", i)
			empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: empty})
			mount := corev1.VolumeMount{Name: name, MountPath: "/volumes/" + name}
			p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, mount)
		}
	}
}

// watched gives each container the probes of an ordinary pod, every 10 s: a readiness probe that
// runs a command, and a liveness probe of the HTTP server.
func watched(server *net.TCPAddr) func(*corev1.Pod) {
	get := &corev1.HTTPGetAction{Host: server.IP.String(), Port: intstr.FromInt(server.Port)}
	return func(p *corev1.Pod) {
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			c.ReadinessProbe = &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{Exec: execs("exit", "0")},
				PeriodSeconds: 10,
			}
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: get}, PeriodSeconds: 10}
		}
	}
}

// slowEnd gives the main container a hook before its end, longer than the pod's grace period.
func slowEnd(p *corev1.Pod) {
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PreStop: &corev1.LifecycleHandler{Exec: execs("sleep", "30s")},
	}
}

// cpu gives the main container CPU, as request and limit.
func cpu(q string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	}
}

// unlively gives the main container a failing liveness probe, so that it is killed and restarted.
func unlively(p *corev1.Pod) {
	p.Spec.Containers[0].LivenessProbe = &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{Exec: execs("exit", "1")},
		PeriodSeconds:       1,
		FailureThreshold:    1,
		InitialDelaySeconds: 1,
	}
}

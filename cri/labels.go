// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// The labels that the kubelet puts on every sandbox and container.
const (
	labelPodUID       = "io.kubernetes.pod.uid"
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
)

// podLabels are the labels that tell the pod of a sandbox or container. The slices alias the
// message that they were read from.
type podLabels struct{ uid, name, namespace []byte }

// read takes one encoded label. It reports false if the label is malformed.
func (l *podLabels) read(entry []byte) bool {
	key, value, ok := mapEntry(entry)
	switch string(key) { // does not allocate
	case labelPodUID:
		l.uid = value
	case labelPodName:
		l.name = value
	case labelPodNamespace:
		l.namespace = value
	}
	return ok
}

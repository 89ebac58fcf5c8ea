// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
)

// kind holds the functions by which a table reads its elements.
type kind[E any] struct {
	// first is the phase in which an item comes to be.
	first  Phase
	id     func(E) string
	labels func(E) map[string]string
	// sandbox returns the ID of the element's sandbox.
	sandbox func(E) string
	phase   func(E) Phase
	// with returns a copy in another phase.
	with func(E, Phase) E
	// same reports whether two elements of one ID and phase are equal in everything else.
	same func(a, b E) bool
}

var sandboxKind = kind[*runtimeapi.PodSandbox]{
	first:   Running,
	id:      (*runtimeapi.PodSandbox).GetId,
	labels:  (*runtimeapi.PodSandbox).GetLabels,
	sandbox: (*runtimeapi.PodSandbox).GetId,
	phase:   func(s *runtimeapi.PodSandbox) Phase { return sandboxPhase(s.GetState()) },
	with: func(s *runtimeapi.PodSandbox, p Phase) *runtimeapi.PodSandbox {
		copied := shallow(s)
		copied.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		if p == Running {
			copied.State = runtimeapi.PodSandboxState_SANDBOX_READY
		}
		return copied
	},
	same: func(a, b *runtimeapi.PodSandbox) bool {
		m := a.GetMetadata()
		n := b.GetMetadata()
		return m.GetName() == n.GetName() && m.GetUid() == n.GetUid() && m.GetNamespace() == n.GetNamespace() &&
			m.GetAttempt() == n.GetAttempt() && a.CreatedAt == b.CreatedAt && a.RuntimeHandler == b.RuntimeHandler &&
			maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
	},
}

var containerKind = kind[*runtimeapi.Container]{
	first:   Created,
	id:      (*runtimeapi.Container).GetId,
	labels:  (*runtimeapi.Container).GetLabels,
	sandbox: (*runtimeapi.Container).GetPodSandboxId,
	phase:   func(c *runtimeapi.Container) Phase { return criphase.OfContainer(c.GetState()) },
	with: func(c *runtimeapi.Container, p Phase) *runtimeapi.Container {
		copied := shallow(c)
		copied.State = containerState(p)
		return copied
	},
	same: func(a, b *runtimeapi.Container) bool {
		m := a.GetMetadata()
		n := b.GetMetadata()
		return m.GetName() == n.GetName() && m.GetAttempt() == n.GetAttempt() && a.PodSandboxId == b.PodSandboxId &&
			sameImage(a.GetImage(), b.GetImage()) && a.ImageRef == b.ImageRef && a.ImageId == b.ImageId &&
			a.CreatedAt == b.CreatedAt && maps.Equal(a.Labels, b.Labels) &&
			maps.Equal(a.Annotations, b.Annotations)
	},
}

// sameImage reports whether two elements name an image in the same way, and the handler that has
// pulled it.
func sameImage(a, b *runtimeapi.ImageSpec) bool {
	return a.GetImage() == b.GetImage() && a.GetRuntimeHandler() == b.GetRuntimeHandler() &&
		a.GetUserSpecifiedImage() == b.GetUserSpecifiedImage() &&
		maps.Equal(a.GetAnnotations(), b.GetAnnotations()) && imageRef(a) == imageRef(b)
}

// imageRef returns the field of that name, which the oldest CRI served here lacks.
func imageRef(spec any) string {
	if s, has := spec.(interface{ GetImageRef() string }); has {
		return s.GetImageRef()
	}
	return ""
}

// sandboxPhase returns the phase of a sandbox in a state. A state of a later CRI is unknown: the
// lists that show it, or that filter by it, are the runtime's.
func sandboxPhase(s runtimeapi.PodSandboxState) Phase {
	switch s {
	case runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY:
		return criphase.OfSandbox(s)
	}
	return Unknown
}

// containerState returns the CRI state of a container in a phase.
func containerState(p Phase) runtimeapi.ContainerState {
	switch p {
	case Created:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case Running:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	case Exited:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

// sandboxOf returns the element of a list that a runtime shows of a sandbox with this status.
func sandboxOf(id string, st *runtimeapi.PodSandboxStatus) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{
		Id:             id,
		Metadata:       st.GetMetadata(),
		State:          st.GetState(),
		CreatedAt:      st.GetCreatedAt(),
		Labels:         st.GetLabels(),
		Annotations:    st.GetAnnotations(),
		RuntimeHandler: st.GetRuntimeHandler(),
	}
}

// containerOf returns the element of a list that a runtime shows of a container with this status.
// A list and a status may name the image in different ways (ImageRef); the ID of the image is the
// same.
func containerOf(id, sandbox string, st *runtimeapi.ContainerStatus) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id:           id,
		PodSandboxId: sandbox,
		Metadata:     st.GetMetadata(),
		Image:        st.GetImage(),
		ImageRef:     st.GetImageRef(),
		ImageId:      st.GetImageId(),
		State:        st.GetState(),
		CreatedAt:    st.GetCreatedAt(),
		Labels:       st.GetLabels(),
		Annotations:  st.GetAnnotations(),
	}
}

// shallow copies the fields of a CRI message, whichever generator made its type, without the
// generator's own bookkeeping. Fields added by later CRI versions are copied too.
func shallow[M any](m *M) *M {
	copied := new(M)
	from := reflect.ValueOf(m).Elem()
	to := reflect.ValueOf(copied).Elem()
	for i := range from.NumField() {
		if f := from.Type().Field(i); f.IsExported() && !strings.HasPrefix(f.Name, "XXX_") {
			to.Field(i).Set(from.Field(i))
		}
	}
	return copied
}

// filter is a CRI filter of either kind. Unset fields filter nothing.
type filter struct {
	id, sandbox string
	labels      map[string]string
	hasState    bool
	state       Phase
}

func sandboxFilter(f *runtimeapi.PodSandboxFilter) filter {
	return filter{
		id: f.GetId(), labels: f.GetLabelSelector(),
		hasState: f.GetState() != nil, state: sandboxPhase(f.GetState().GetState()),
	}
}

func containerFilter(f *runtimeapi.ContainerFilter) filter {
	return filter{
		id:       f.GetId(),
		sandbox:  f.GetPodSandboxId(),
		labels:   f.GetLabelSelector(),
		hasState: f.GetState() != nil,
		state:    criphase.OfContainer(f.GetState().GetState()),
	}
}

// all reports whether the filter passes everything.
func (f filter) all() bool { return f.id == "" && f.sandbox == "" && len(f.labels) == 0 && !f.hasState }

// pod returns the only pod whose items the filter passes; empty if there may be several.
func (f filter) pod() string { return f.labels[PodUIDLabel] }

// wholePod reports whether the filter passes all items of a pod: nothing else is filtered.
func (f filter) wholePod() bool {
	return f.id == "" && f.sandbox == "" && !f.hasState && len(f.labels) == 1 && f.pod() != ""
}

// mayShow reports whether a list with this filter could show an item of the pod with an unknown ID,
// or with one of these. The empty pod is any.
func (f filter) mayShow(pod string, ids []string) bool {
	if f.id != "" && !slices.Contains(ids, f.id) {
		return false
	}
	return pod == "" || f.pod() == "" || f.pod() == pod
}

// covers reports whether a list with this filter would show the element with this ID, regardless of
// state and of other, unknown fields. Labels are never known: a container made by hand need not
// have any.
func (f filter) covers(id string) bool {
	return (f.id == "" || f.id == id) && f.sandbox == "" && len(f.labels) == 0
}

// mayCover reports whether a list with this filter could show an element with this ID, of which at
// most the pod is known.
func (f filter) mayCover(id, pod string) bool {
	if f.id != "" && f.id != id {
		return false
	}
	return f.pod() == "" || pod == "" || f.pod() == pod
}

// covers reports whether a list with this filter shows the element, state aside.
func (t *table[E]) covers(f filter, e E) bool {
	if f.id != "" && f.id != t.id(e) || f.sandbox != "" && f.sandbox != t.sandbox(e) {
		return false
	}
	labels := t.labels(e)
	for k, v := range f.labels {
		if has, ok := labels[k]; !ok || has != v {
			return false
		}
	}
	return true
}

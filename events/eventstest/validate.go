// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventstest

import (
	"encoding/json"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateEvent applies the rules of a kube-apiserver (v1.36, v1.37) for an Event of either API.
func validateEvent(e *eventsv1.Event) field.ErrorList {
	errs := validateMeta(&e.ObjectMeta)
	bad := func(path string, value any, why string) {
		errs = append(errs, field.Invalid(field.NewPath(path), value, why))
	}
	ns := e.Regarding.Namespace
	if e.EventTime.IsZero() {
		if ns == "" && e.Namespace != metav1.NamespaceDefault || ns != "" && ns != e.Namespace {
			bad("regarding.namespace", ns, "does not match event.namespace")
		}
		return errs
	}
	if ns == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem {
		bad("regarding.namespace", ns, "does not match event.namespace")
	}
	for _, m := range validation.IsQualifiedName(e.ReportingController) {
		bad("reportingController", e.ReportingController, m)
	}
	for _, f := range []struct{ name, value string }{{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason}} {
		if len(f.value) == 0 || len(f.value) > 128 {
			bad(f.name, f.value, "must have 1 to 128 characters")
		}
	}
	if len(e.Note) > 1024 {
		bad("note", "", "can have at most 1024 characters")
	}
	return errs
}

// validateCreate applies the additional rules for a new events.k8s.io/v1 Event.
func validateCreate(e *eventsv1.Event) (errs field.ErrorList) {
	bad := func(path string, value any, why string) {
		errs = append(errs, field.Invalid(field.NewPath(path), value, why))
	}
	for _, why := range apivalidation.NameIsDNSSubdomain(e.Name, false) {
		bad("metadata.name", e.Name, why)
	}
	if e.EventTime.IsZero() {
		bad("eventTime", "", "must be set")
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		bad("type", e.Type, "must be Normal or Warning")
	}
	if e.DeprecatedCount != 0 || e.DeprecatedSource != (corev1.EventSource{}) || !e.DeprecatedFirstTimestamp.IsZero() || !e.DeprecatedLastTimestamp.IsZero() {
		bad("deprecatedCount", e.DeprecatedCount, "needs to be unset")
	}
	return append(errs, validateSeries(e.Series)...)
}

func validateMeta(m *metav1.ObjectMeta) (errs field.ErrorList) {
	for _, why := range apivalidation.ValidateNamespaceName(m.Namespace, false) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "namespace"), m.Namespace, why))
	}
	return append(errs, apivalidation.ValidateAnnotations(m.Annotations, field.NewPath("metadata", "annotations"))...)
}

func validateSeries(s *eventsv1.EventSeries) (errs field.ErrorList) {
	if s == nil {
		return nil
	}
	if s.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series", "count"), s.Count, "should be at least 2"))
	}
	if s.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series", "lastObservedTime"), ""))
	}
	return errs
}

// validateUpdate allows changes of series, labels and annotations only.
func validateUpdate(e, old *eventsv1.Event) field.ErrorList {
	errs := validateSeries(e.Series)
	plain := func(e *eventsv1.Event) eventsv1.Event {
		c := *e.DeepCopy()
		c.ObjectMeta = metav1.ObjectMeta{Name: e.Name, Namespace: e.Namespace}
		c.TypeMeta = metav1.TypeMeta{}
		c.Series = nil
		var out eventsv1.Event
		data, _ := json.Marshal(c)
		_ = json.Unmarshal(data, &out)
		return out
	}
	if !reflect.DeepEqual(plain(e), plain(old)) {
		errs = append(errs, field.Invalid(field.NewPath(""), "", "field is immutable"))
	}
	return errs
}

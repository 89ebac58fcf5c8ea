// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventstest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

const maxBody = 1 << 20

// ServeHTTP serves create, update and patch of Events in both groups, and the discovery of
// events.k8s.io/v1.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var out any
	var err error
	switch {
	case len(path) == 3 && path[0] == "apis" && path[1] == "events.k8s.io":
		if _, err = s.Probe(r.Context()); err == nil && !s.served() {
			err = noRoute()
		}
		out = metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "events.k8s.io/v1",
			APIResources: []metav1.APIResource{{Name: "events", Kind: "Event", Namespaced: true}},
		}
	case len(path) >= 6 && path[0] == "apis" && path[1] == "events.k8s.io" && path[5] == "events":
		out, err = s.serveEvent(r, path[4], path[6:])
	case len(path) >= 5 && path[0] == "api" && path[4] == "events":
		out, err = s.serveCore(r, path[3], path[5:])
	default:
		err = apierrors.NewGenericServerResponse(404, r.Method, eventsResource, "", "404 page not found", 0, true)
	}
	reply(w, out, err)
}

func (s *Server) served() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.absent
}

func (s *Server) serveEvent(r *http.Request, namespace string, rest []string) (any, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	e := &eventsv1.Event{}
	e.Namespace = namespace
	if len(rest) > 0 {
		e.Name = rest[0]
	}
	if r.Method == http.MethodPatch {
		return typed(s.Sink().Patch(r.Context(), e, body))
	}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, e); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	e.Namespace = namespace
	switch r.Method {
	case http.MethodPost:
		return typed(s.Sink().Create(r.Context(), e))
	case http.MethodPut:
		return typed(s.Sink().Update(r.Context(), e))
	}
	return nil, apierrors.NewMethodNotSupported(eventsResource, r.Method)
}

func typed(e *eventsv1.Event, err error) (any, error) {
	if e != nil {
		e.TypeMeta = metav1.TypeMeta{Kind: "Event", APIVersion: "events.k8s.io/v1"}
	}
	return e, err
}

func (s *Server) serveCore(r *http.Request, namespace string, rest []string) (any, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	e := &corev1.Event{}
	e.Namespace = namespace
	if len(rest) > 0 {
		e.Name = rest[0]
	}
	if r.Method != http.MethodPatch {
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, e); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		e.Namespace = namespace
	}
	var out *corev1.Event
	switch r.Method {
	case http.MethodPatch:
		out, err = s.LegacySink().Patch(r.Context(), e, body)
	case http.MethodPost:
		out, err = s.LegacySink().Create(r.Context(), e)
	case http.MethodPut:
		out, err = s.LegacySink().Update(r.Context(), e)
	default:
		return nil, apierrors.NewMethodNotSupported(coreResource, r.Method)
	}
	if out != nil {
		out.TypeMeta = metav1.TypeMeta{Kind: "Event", APIVersion: "v1"}
	}
	return out, err
}

func reply(w http.ResponseWriter, out any, err error) {
	code := http.StatusOK
	if err != nil {
		status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
		if as := apierrors.APIStatus(nil); errors.As(err, &as) {
			status = as.Status()
		}
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		if status.Code == http.StatusNotFound && status.Details != nil && len(status.Details.Causes) > 0 {
			http.Error(w, "404 page not found", http.StatusNotFound) // as for an unknown path
			return
		}
		if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
		}
		code, out = int(status.Code), status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(out) // the client has gone if this fails
}

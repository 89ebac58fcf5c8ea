// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventstest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

const maxBody = 1 << 20

// ServeHTTP serves create, update and patch of Events in both groups.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, err := s.handle(r)
	reply(w, out, err)
}

// handle carries out a request to either group.
func (s *Server) handle(r *http.Request) (out any, err error) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(path) >= 6 && path[0] == "apis" && path[1] == "events.k8s.io" && path[5] == "events":
		return serve(r, s.Sink(), path[4], path[6:])
	case len(path) >= 5 && path[0] == "api" && path[4] == "events":
		return serve(r, s.LegacySink(), path[3], path[5:])
	}
	return nil, apierrors.NewGenericServerResponse(
		http.StatusNotFound, r.Method, eventsResource, "", "404 page not found", 0, true)
}

// Transport returns a transport to the server without a network, for whole clients in
// testing/synctest bubbles. An error of a fault that is no API status is an error of the transport.
func (s *Server) Transport() http.RoundTripper { return wire{s} }

type wire struct{ server *Server }

// RoundTrip implements http.RoundTripper.
func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	out, err := w.server.handle(r)
	if err != nil && !errors.As(err, new(apierrors.APIStatus)) {
		return nil, err
	}
	answer := httptest.NewRecorder()
	reply(answer, out, err)
	response := answer.Result()
	response.Request = r
	return response, nil
}

// object is an event of either group.
type object interface {
	runtime.Object
	metav1.Object
}

// serve answers a request to a side of the server. rest is the path behind the resource.
func serve[E eventsv1.Event | corev1.Event](r *http.Request, k *Sink[E], namespace string, rest []string) (answer runtime.Object, err error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	e := new(E)
	in := any(e).(object)
	if len(rest) > 0 {
		in.SetName(rest[0])
	}
	if r.Method != http.MethodPatch {
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, in); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	in.SetNamespace(namespace)
	var out *E
	switch r.Method {
	case http.MethodPatch:
		out, err = k.Patch(r.Context(), e, body)
	case http.MethodPost:
		out, err = k.Create(r.Context(), e)
	case http.MethodPut:
		out, err = k.Update(r.Context(), e)
	default:
		err = apierrors.NewMethodNotSupported(eventsResource, r.Method)
	}
	if err != nil {
		return nil, err
	}
	answer = any(out).(object)
	kinds, _, _ := scheme.Scheme.ObjectKinds(answer)
	answer.GetObjectKind().SetGroupVersionKind(kinds[0])
	return answer, nil
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
		code = int(status.Code)
		out = status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(out) // the client has gone if this fails
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
)

// verdict is what an answer of the server means for the recorder.
type verdict uint8

const (
	verdictOK       verdict = iota
	verdictExists           // the name is taken
	verdictMissing          // no such object, or no such resource
	verdictConflict         // somebody else wrote at the same time: try this one again
	verdictRefused          // never going to work
	verdictTrouble          // the server is in trouble: everything waits
	verdictFault            // the server failed at this one, perhaps at all: everything waits, and this one a little longer
	verdictStopped          // we were told to stop
)

// judged is a classified answer.
type judged struct {
	verdict
	reason string        // short, of low cardinality, for metrics
	after  time.Duration // how long the server asks us to wait
}

// judge sorts errors by what to do; ctx is the one that tells the recorder to stop. A server that
// is overloaded, failing or away is trouble of all events; a refusal is of one.
func judge(ctx context.Context, err error) judged {
	if err == nil {
		return judged{}
	}
	var as apierrors.APIStatus
	switch {
	case errors.As(err, new(*restclient.RequestConstructionError)):
		return judged{verdict: verdictRefused, reason: "RequestConstruction"}
	case errors.As(err, &as):
	case ctx.Err() != nil:
		return judged{verdict: verdictStopped, reason: "Stopped"}
	default:
		j := judged{verdict: verdictTrouble, reason: "Transport"}
		if brokenOff(err) {
			j.verdict = verdictFault
		}
		return j
	}
	st := as.Status()
	j := judged{reason: statusReason(&st)}
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		j.after = time.Duration(s) * time.Second
	} else if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		j.after = time.Duration(st.Details.RetryAfterSeconds) * time.Second
	}
	switch code := int(st.Code); {
	case st.Reason == metav1.StatusReasonAlreadyExists:
		j.verdict = verdictExists
	case code == http.StatusConflict || st.Reason == metav1.StatusReasonConflict:
		j.verdict = verdictConflict
	case code == http.StatusNotFound || st.Reason == metav1.StatusReasonNotFound:
		j.verdict = verdictMissing
		if st.Details != nil && st.Details.Kind == "namespaces" {
			j.verdict, j.reason = verdictRefused, "NamespaceNotFound"
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		j.verdict, j.reason = verdictRefused, "NamespaceTerminating"
	case code == http.StatusInternalServerError, code == http.StatusGatewayTimeout:
		j.verdict = verdictFault
	case code == http.StatusTooManyRequests, code == http.StatusUnauthorized, code == http.StatusRequestTimeout, code > http.StatusInternalServerError,
		code == 0, st.Reason == metav1.StatusReasonTooManyRequests:
		// 401 is about our credentials, which rotate, not about the event.
		j.verdict = verdictTrouble
	default:
		j.verdict = verdictRefused
	}
	return j
}

// brokenOff is true of a call that reached something: it hung until the time was over, or ended
// without an answer. That may be the fault of what was sent; a connection that is refused never is.
func brokenOff(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.As(err, &timeout) && timeout.Timeout()
}

// routeMissing tells the 404 of a server that does not know the resource from that of an object
// that is not there.
func routeMissing(err error) bool {
	var as apierrors.APIStatus
	if !errors.As(err, &as) {
		return false
	}
	d := as.Status().Details
	if d == nil {
		return true
	}
	for _, c := range d.Causes {
		if c.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return false
}

// statusReason is the reason if it is one of the API's, else the class of the code: a server must
// not be able to grow our metrics.
func statusReason(st *metav1.Status) string {
	switch st.Reason {
	case metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists,
		metav1.StatusReasonConflict, metav1.StatusReasonInvalid, metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout,
		metav1.StatusReasonTooManyRequests, metav1.StatusReasonBadRequest, metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonNotAcceptable,
		metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonUnsupportedMediaType, metav1.StatusReasonInternalError,
		metav1.StatusReasonExpired, metav1.StatusReasonServiceUnavailable, metav1.StatusReasonGone:
		return string(st.Reason)
	}
	switch c := st.Code; {
	case c == http.StatusTooManyRequests:
		return "TooManyRequests"
	case c == http.StatusRequestEntityTooLarge:
		return "RequestEntityTooLarge"
	case c >= 500:
		return "Server5xx"
	case c >= 400:
		return "Client4xx"
	}
	return "Other"
}

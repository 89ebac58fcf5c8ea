// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
)

// verdict is the recorder's classification of a server's answer. From verdictTrouble on, the call
// is made again later.
type verdict uint8

const (
	verdictOK       verdict = iota
	verdictMissing          // no such object, or no such resource
	verdictConflict         // somebody else has created or written the object: read and try again
	verdictRefused          // never going to work
	verdictTrouble          // too many calls, or nobody answers: try again for ever
	verdictFault            // the server failed at this call, perhaps because of the call
	verdictHeld             // 403 for a call allowed before, or 409 of several: the calls of a kind wait
	verdictStopped          // the recorder was asked to stop
)

// judged is a classified answer.
type judged struct {
	verdict
	reason  string        // short, of low cardinality, for metrics
	after   time.Duration // how long the server asks us to wait
	perhaps bool          // the call may have been carried out
	// everywhere: only the server as a whole, or the own client, explains the answer.
	everywhere bool
	// unsent: the own client let nothing through.
	unsent bool
}

// judge classifies an error by the reaction to take; ctx stops the recorder. A call without a
// connection is the server's trouble, and one without a turn at the own client's rate limiter is
// that client's: either stops all calls, and blames none. Every other error without a status, such
// as an unrecognized failed handshake or an undecodable answer, may be caused by the request.
func judge(ctx context.Context, err error) judged {
	if err == nil {
		return judged{}
	}
	var as apierrors.APIStatus
	var op *net.OpError
	switch {
	case errors.As(err, new(*restclient.RequestConstructionError)):
		return judged{verdict: verdictRefused, reason: "RequestConstruction"}
	case errors.As(err, &as):
	case unsent(err) && ctx.Err() != nil:
		return judged{verdict: verdictStopped, reason: "Stopped", unsent: true}
	case unsent(err):
		return judged{
			verdict:    verdictTrouble,
			reason:     "ClientRateLimit",
			everywhere: true,
			unsent:     true,
		}
	case ctx.Err() != nil:
		return judged{verdict: verdictStopped, reason: "Stopped", perhaps: true}
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &op) && op.Op == "dial":
		return judged{verdict: verdictTrouble, reason: "Unreachable", everywhere: true}
	default:
		return judged{verdict: verdictFault, reason: "Transport", perhaps: true}
	}
	st := as.Status()
	// The code's name: a server cannot add metric labels.
	j := judged{reason: cmp.Or(strings.ReplaceAll(http.StatusText(int(st.Code)), " ", ""), "Other")}
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		j.after = time.Duration(s) * time.Second
	}
	code := int(st.Code)
	switch {
	case code == http.StatusConflict,
		st.Reason == metav1.StatusReasonAlreadyExists,
		st.Reason == metav1.StatusReasonConflict:
		j.verdict = verdictConflict
	case code == http.StatusNotFound && apierrors.IsUnexpectedServerError(err):
		j.verdict = verdictTrouble // no API server, or not yet
		j.everywhere = true
	case code == http.StatusNotFound || st.Reason == metav1.StatusReasonNotFound:
		j.verdict = verdictMissing
		if st.Details != nil && st.Details.Kind == "namespaces" {
			j.verdict = verdictRefused
			j.reason = "NamespaceNotFound"
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		j.verdict = verdictRefused
		j.reason = "NamespaceTerminating"
	case code == http.StatusInternalServerError, code == http.StatusGatewayTimeout:
		j.verdict = verdictFault
		j.perhaps = true
	case code == http.StatusTooManyRequests,
		code == http.StatusUnauthorized,
		code == http.StatusRequestTimeout,
		code > http.StatusInternalServerError,
		code == 0,
		st.Reason == metav1.StatusReasonTooManyRequests:
		// 401 is about our credentials, which rotate, not about the event.
		j.verdict = verdictTrouble
		j.perhaps = code >= http.StatusInternalServerError
		j.everywhere = code == http.StatusUnauthorized
	default:
		j.verdict = verdictRefused
	}
	return j
}

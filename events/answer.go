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
	"k8s.io/apimachinery/pkg/util/wait"
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
	verdictTrouble          // the server cannot be reached or is overloaded: everything waits
	verdictFault            // the server failed at this call, perhaps at all
	verdictHeld             // 403 for a call allowed before, or 409 again: the scope waits
	verdictStopped          // the recorder was asked to stop
)

// judged is a classified answer.
type judged struct {
	verdict
	reason  string        // short, of low cardinality, for metrics
	after   time.Duration // how long the server asks us to wait
	perhaps bool          // the call may have been carried out
}

// judge classifies an error by the reaction to take; ctx stops the recorder. A call without a
// connection is the server's trouble. Every other error without a status, such as an unrecognized
// failed handshake or an undecodable answer, may be caused by the request.
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
	case ctx.Err() != nil:
		return judged{verdict: verdictStopped, reason: "Stopped", perhaps: true}
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &op) && op.Op == "dial":
		return judged{verdict: verdictTrouble, reason: "Unreachable"}
	default:
		return judged{verdict: verdictFault, reason: "Transport", perhaps: true}
	}
	st := as.Status()
	// The code's name: a server cannot add metric labels.
	j := judged{reason: cmp.Or(strings.ReplaceAll(http.StatusText(int(st.Code)), " ", ""), "Other")}
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		j.after = time.Duration(s) * time.Second
	}
	switch code := int(st.Code); {
	case code == http.StatusConflict, st.Reason == metav1.StatusReasonAlreadyExists, st.Reason == metav1.StatusReasonConflict:
		j.verdict = verdictConflict
	case code == http.StatusNotFound && apierrors.IsUnexpectedServerError(err):
		j.verdict = verdictTrouble // no API server, or not yet
	case code == http.StatusNotFound || st.Reason == metav1.StatusReasonNotFound:
		j.verdict = verdictMissing
		if st.Details != nil && st.Details.Kind == "namespaces" {
			j.verdict, j.reason = verdictRefused, "NamespaceNotFound"
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		j.verdict, j.reason = verdictRefused, "NamespaceTerminating"
	case code == http.StatusInternalServerError, code == http.StatusGatewayTimeout:
		j.verdict, j.perhaps = verdictFault, true
	case code == http.StatusTooManyRequests, code == http.StatusUnauthorized, code == http.StatusRequestTimeout, code > http.StatusInternalServerError,
		code == 0, st.Reason == metav1.StatusReasonTooManyRequests:
		// 401 is about our credentials, which rotate, not about the event.
		j.verdict, j.perhaps = verdictTrouble, code >= http.StatusInternalServerError
	default:
		j.verdict = verdictRefused
	}
	return j
}

// gate holds calls back after a failure, for an exponential delay with jitter. Then single calls
// probe the server, until one succeeds. A nil gate is open.
type gate struct {
	delay    wait.Backoff
	failures int
	since    time.Time // the first failure
	until    time.Time
}

// newGate returns an open gate. Its delays lie between half of BackoffBase and BackoffMax.
func newGate(o *Options, now time.Time) *gate {
	return &gate{delay: wait.Backoff{Duration: o.BackoffBase / 2, Factor: 2, Jitter: 1, Steps: 64, Cap: o.BackoffMax / 2}, since: now}
}

// fail closes the gate for the larger of the server's Retry-After and the next delay.
func (g *gate) fail(now time.Time, asked time.Duration) {
	g.failures++
	g.until = now.Add(max(g.delay.Step(), min(asked, maxRetryAfter)))
}

// closed returns for how long nothing may be sent.
func (g *gate) closed(now time.Time) time.Duration {
	if g == nil {
		return 0
	}
	return max(g.until.Sub(now), 0)
}

// scope is the unit of a role: calls of a kind in a namespace. The zero scope is all calls.
type scope struct {
	namespace string
	kind      callKind
}

func (s *series) scope() scope {
	if s.st.phase == phaseAbsent {
		return scope{s.content.namespace, callCreate}
	}
	return scope{s.content.namespace, callPatch}
}

// trouble is the record of a series' failures in a row.
type trouble struct {
	gate
	blamed   int   // failures between which calls of others succeeded
	okBefore int64 // how many calls had succeeded at the last of these
}

const (
	maxRetryAfter = 5 * time.Minute // the longest Retry-After honoured
	// maxFaults bounds a call's failures while other calls succeed; then its series is given up.
	maxFaults = 12
	// heldFor is how long a 403 is held for a call allowed before: the authorizer may fail, or the
	// role may be under replacement. Likewise after trouble until a call is accepted: a
	// kube-apiserver refuses every call until its roles are loaded.
	heldFor = 5 * time.Minute
)

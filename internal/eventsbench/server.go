// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventsbench

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// server is where the events go.
type server struct {
	config *rest.Config
	close  func()
	// stored returns what the server holds of a run: objects, and the occurrences that they tell of.
	stored func(ctx context.Context, run string) (objects int, occurrences int64, err error)
}

// embedded starts an API server for Events on a loopback port.
func embedded(o *Options) (*server, error) {
	api := eventstest.NewServer()
	until := time.Now().Add(o.FaultFor)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the embedded API server: %w", err)
	}
	handler := http.Handler(api)
	switch o.Fault {
	case FaultNone:
	case FaultUnreachable:
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if time.Now().Before(until) {
				panic(http.ErrAbortHandler) // closes the connection
			}
			api.ServeHTTP(w, r)
		})
	default:
		answer := faultStatus(o.Fault)
		api.SetFault(func(context.Context, eventstest.Call) error {
			if time.Now().Before(until) {
				return answer
			}
			return nil
		})
	}
	// client-go's recorder opens so many connections that accepting fails; that is counted by its transport.
	h := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Serve(listener) // ends with Close
	}()
	return &server{
		config: &rest.Config{Host: "http://" + listener.Addr().String()},
		close: func() {
			_ = h.Close()
			<-done
		},
		stored: func(context.Context, string) (objects int, occurrences int64, err error) {
			for _, e := range api.Events() {
				if e.Annotations[events.AnnotationRoster] != "" {
					continue
				}
				objects++
				occurrences += occurrencesOf(&e)
			}
			return objects, occurrences, nil
		},
	}, nil
}

func faultStatus(fault string) error {
	st := metav1.Status{Status: metav1.StatusFailure, Message: "on purpose", Details: &metav1.StatusDetails{}}
	switch fault {
	case Fault429:
		st.Code, st.Reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
	case Fault429After:
		st.Code, st.Reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
		st.Details.RetryAfterSeconds = 1
	case Fault500:
		st.Code, st.Reason = http.StatusInternalServerError, metav1.StatusReasonInternalError
	case Fault503:
		st.Code, st.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	}
	return &apierrors.StatusError{ErrStatus: st}
}

// occurrencesOf is what one stored event tells of, whichever recorder wrote it.
func occurrencesOf(e *eventsv1.Event) int64 {
	switch {
	case e.Annotations[events.AnnotationRoster] != "": // tells of none
		return 0
	case e.Series != nil:
		return int64(e.Series.Count)
	case e.DeprecatedCount > 0:
		return int64(e.DeprecatedCount)
	}
	return 1
}

// remote is a real API server. Events of a run are told by their controller and the UIDs that they are about.
func remote(kubeconfig string) (*server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", kubeconfig, err)
	}
	plain := rest.CopyConfig(config)
	plain.QPS = -1
	client, err := kubernetes.NewForConfig(plain)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return &server{
		config: config,
		close:  func() {},
		stored: func(ctx context.Context, run string) (objects int, occurrences int64, err error) {
			token := ""
			for {
				l, err := client.EventsV1().Events(benchNamespace).List(ctx, metav1.ListOptions{
					FieldSelector: fields.OneTermEqualSelector("reportingController", controller).String(), Limit: 500, Continue: token,
				})
				if err != nil {
					return 0, 0, fmt.Errorf("listing what is stored: %w", err)
				}
				for i := range l.Items {
					if strings.HasPrefix(string(l.Items[i].Regarding.UID), run+"-") { // others are of earlier runs
						objects++
						occurrences += occurrencesOf(&l.Items[i])
					}
				}
				if token = l.Continue; token == "" {
					return objects, occurrences, nil
				}
			}
		},
	}, nil
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"sync"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/embed/ledger"
)

// Metrics of a [Service]; the slash is followed by a caller or a reason.
const (
	MetricListsServed    = "lists_served/"
	MetricListsForwarded = "lists_forwarded/"
)

// Reasons to forward a list, beside the ledger's.
const (
	reasonPLEG    = "pleg"    // the generator reads
	reasonCaller  = "caller"  // even a short lag would be wrong
	reasonResolve = "resolve" // a read of an ID in doubt, for a list from memory
)

// resolveTimeout bounds how long a list waits for IDs in doubt before the list is forwarded.
const resolveTimeout = time.Second

// Service is a kubelet's CRI client that answers lists of sandboxes and containers from a ledger of
// events, answers and own calls; see package ledger for the rules. Other calls are forwarded; those
// that change the runtime are told as by [Calls].
// Nothing is served from memory before [Service.ServeLists]. A Service is safe for concurrent use.
// Its only goroutine forwards events, and ends with their stream.
type Service struct {
	*Calls // of an observer, whose client is the runtime's

	resolving sync.Mutex // held while IDs in doubt are read; nobody waits for resolving

	mu      sync.Mutex // owns the fields below; never held during a call
	ledger  *ledger.Ledger
	streams int // open streams of events
	trusted func() bool
	// asked counts the questions to trusted, and answered is the last of them whose answer the ledger
	// has.
	asked, answered uint64
	add             func(name string, n int)
}

// NewService wraps a CRI client.
func NewService(client internalapi.RuntimeService) *Service {
	s := &Service{ledger: ledger.New(0)}
	s.Calls = NewCalls(&observer{RuntimeService: client, service: s})
	s.inner = s.hear
	return s
}

// ServeLists starts serving lists from memory. trusted reports whether the generator hears of
// changes: its stream is connected. The full lists begun since are for the service to wait for.
// maxAge is how long a full list suffices without another, and the age limit of all answers from
// memory. add takes the service's counters.
func (s *Service) ServeLists(trusted func() bool, maxAge time.Duration, add func(name string, n int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trusted = trusted
	s.add = add
	s.ledger.SetMaxAge(maxAge)
}

// count reports to ServeLists' add.
func (s *Service) count(name string, n int) {
	s.mu.Lock()
	add := s.add
	s.mu.Unlock()
	if add != nil {
		add(name, n)
	}
}

// withTrust runs f on the ledger, which knows then whether the stream can be trusted.
func (s *Service) withTrust(f func(l *ledger.Ledger, now time.Time)) {
	s.mu.Lock()
	trusted := s.trusted
	s.asked++
	question := s.asked
	s.mu.Unlock()
	trust := trusted != nil && trusted() // takes a lock of its own
	s.mu.Lock()
	defer s.mu.Unlock()
	if question > s.answered { // a later question may have been answered since, and knows better
		s.answered = question
		s.ledger.Trust(trust && s.streams > 0)
	}
	f(s.ledger, time.Now())
}

// beginRead notes the start of a read.
func (s *Service) beginRead() (r ledger.Read) {
	s.withTrust(func(l *ledger.Ledger, now time.Time) { r = l.Begin(now) })
	return r
}

// update runs f on the ledger.
func (s *Service) update(f func(l *ledger.Ledger, now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.ledger, time.Now())
}

// Revision returns a number that changes with every change that lists could show.
func (s *Service) Revision() (n uint64) {
	s.update(func(l *ledger.Ledger, _ time.Time) { n = l.Revision() })
	return n
}

// Current reports whether the runtime's lists are unchanged since that revision, as surely as a
// list served from memory, without making a list. A true result counts as two lists served. While
// anything is in doubt, Current returns false: the caller's lists then cause the reads.
func (s *Service) Current(ctx context.Context, revision uint64) (current bool) {
	s.withTrust(
		func(l *ledger.Ledger, now time.Time) { current = l.Revision() == revision && l.ServesAll(now) },
	)
	if current {
		s.count(MetricListsServed+string(callInfoOf(ctx).by), 2)
	}
	return current
}

// Standing returns the revision, and whether lists of everything would be served from memory now:
// while they are, an unchanged revision means that the runtime shows no change.
func (s *Service) Standing() (revision uint64, served bool) {
	s.withTrust(func(l *ledger.Ledger, now time.Time) {
		revision = l.Revision()
		served = l.ServesAll(now)
	})
	return revision, served
}

// ListPodSandbox lists sandboxes, from memory if the ledger allows. The slice is the caller's own;
// the elements are shared and must not be changed.
func (s *Service) ListPodSandbox(
	ctx context.Context,
	f *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	return s.sandboxes().list(ctx, f, f == nil, f.GetState() != nil)
}

// ListContainers lists containers, as ListPodSandbox lists sandboxes.
func (s *Service) ListContainers(
	ctx context.Context,
	f *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	return s.containers().list(ctx, f, f == nil, f.GetState() != nil)
}

// SandboxOf returns the sandbox of a container or sandbox that a read has shown or an own call has
// made; empty if there is none such.
func (s *Service) SandboxOf(id string) (sandbox string) {
	s.update(func(l *ledger.Ledger, _ time.Time) { sandbox = l.SandboxOf(id) })
	return sandbox
}

// Recent reports whether properties of containers that never change may be answered from memory:
// lists are served, and a full list has been made within the age limit.
func (s *Service) Recent() (recent bool) {
	s.withTrust(func(l *ledger.Ledger, now time.Time) { recent = l.Recent(now) })
	return recent
}

// LogPath returns the log path of a container that the runtime has, if known from a status and
// while [Service.Recent].
func (s *Service) LogPath(id string) (path string, ok bool) {
	s.withTrust(func(l *ledger.Ledger, now time.Time) {
		if l.Recent(now) {
			path, ok = l.LogPath(id)
		}
	})
	return path, ok
}

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

// Caller is who asks for a list. A context carries it; see [As].
type Caller string

// Callers.
const (
	// ByPLEG reads for the generator, and always from the runtime.
	ByPLEG Caller = "pleg"
	// ByHousekeeping is the kubelet's runtime cache, by which it finds pods that should not run.
	ByHousekeeping Caller = "housekeeping"
	// ByContainerLogs is the manager that rotates the containers' logs.
	ByContainerLogs Caller = "container_logs"
	// ByImageGC is the collector of unused images.
	ByImageGC Caller = "image_gc"
	// ByOthers is everybody else: the collection of dead containers, statistics, pod workers.
	ByOthers Caller = "others"
)

type callerKey struct{}

// callInfo is what the context of a call carries.
type callInfo struct {
	by        Caller
	forwarded *bool // set if a list goes to the runtime; owned by the goroutine that reads it
}

// As returns a context in which lists are asked for by that caller.
func As(ctx context.Context, by Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, callInfo{by: by})
}

// Tracked is As. Forwarded says whether a list that was asked for with the context went to the
// runtime; the calls and the question must come from one goroutine.
func Tracked(ctx context.Context, by Caller) (tracked context.Context, forwarded func() bool) {
	flag := new(bool)
	return context.WithValue(ctx, callerKey{}, callInfo{by, flag}), func() bool { return *flag }
}

func callInfoOf(ctx context.Context) callInfo {
	if a, ok := ctx.Value(callerKey{}).(callInfo); ok {
		return a
	}
	return callInfo{by: ByOthers}
}

// Metrics that a [Service] reports; what follows the slash is a caller or a reason.
const (
	MetricListsServed    = "lists_served/"
	MetricListsForwarded = "lists_forwarded/"
)

// Reasons to forward a list that are not the ledger's.
const (
	reasonPLEG    = "pleg"    // the generator reads
	reasonCaller  = "caller"  // the list is one for which even a short lag would be wrong
	reasonResolve = "resolve" // one ID is read, so that a list can be served
)

// resolveTimeout bounds how long a list waits for what is in doubt. Then it is forwarded.
const resolveTimeout = time.Second

// Service is a kubelet's CRI client that remembers what it has seen and done, and answers lists of
// sandboxes and containers from that; see package ledger for the rules. [Service.Version] is
// answered from memory for up to a minute. Everything else is passed on. It serves nothing before
// [Service.ServeLists]. It is safe for concurrent use; it keeps no goroutine but the one that hands
// events on, which ends with their stream.
type Service struct {
	internalapi.RuntimeService

	resolving sync.Mutex // held while IDs in doubt are read; nobody waits for it

	mu      sync.Mutex // owns what follows; never held during a call
	ledger  *ledger.Ledger
	streams int     // streams of events that are open
	calling Calling // nil if nobody is told

	connection connection // that the streams are on
	trusted    func() bool
	add        func(name string, n int)
}

// NewService wraps a CRI client.
func NewService(client internalapi.RuntimeService) *Service {
	return &Service{RuntimeService: client, ledger: ledger.New(0)}
}

// ServeLists has the service serve lists, and Version. Trusted says whether the generator hears of
// changes: its stream is connected, and it has listed everything since. MaxAge is for how long a
// full list is enough, should no other come. Add takes the service's counters.
func (s *Service) ServeLists(trusted func() bool, maxAge time.Duration, add func(name string, n int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trusted, s.add = trusted, add
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
	s.mu.Unlock()
	trust := trusted != nil && trusted() // it takes a lock of its own
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.Trust(trust && s.streams > 0)
	f(s.ledger, time.Now())
}

// beginRead notes that a read begins.
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

// Revision returns a number that changes with everything that a list could show.
func (s *Service) Revision() (n uint64) {
	s.update(func(l *ledger.Ledger, _ time.Time) { n = l.Revision() })
	return n
}

// Current says that the runtime's lists are as they were at that revision, as surely as a list that
// is served from memory is, and without making one. It counts as two lists served. It does not
// while anything is in doubt: who asks for the lists then has that read.
func (s *Service) Current(ctx context.Context, revision uint64) (current bool) {
	s.withTrust(func(l *ledger.Ledger, now time.Time) { current = l.Revision() == revision && l.ServesAll(now) })
	if current {
		s.count(MetricListsServed+string(callInfoOf(ctx).by), 2)
	}
	return current
}

// ListPodSandbox lists sandboxes, from memory if that is right.
func (s *Service) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return s.sandboxes().list(ctx, f, f == nil, f.GetState() != nil)
}

// ListContainers lists containers, from memory if that is right.
func (s *Service) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return s.containers().list(ctx, f, f == nil, f.GetState() != nil)
}

// LogPath returns the path of the log of a container that the runtime has, if a status has told it.
func (s *Service) LogPath(id string) (path string, ok bool) {
	s.update(func(l *ledger.Ledger, _ time.Time) { path, ok = l.LogPath(id) })
	return path, ok
}

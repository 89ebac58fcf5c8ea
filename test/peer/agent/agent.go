// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent is the frame of the compared programs: each holds a PLEG, executes requests from
// its standard input, and answers with their cost to its own process.
//
// # Model
//
// A [Driver] is a PLEG behind the few calls common to every PLEG. [Serve] reads a [Request] a line,
// executes it by the driver, and writes a [Reply] a line. The cost of a request is the difference
// of two readings of the process: CPU time from the kernel (user and system, every thread, garbage
// collection included), bytes and objects allocated from the Go runtime.
//
// The package is a module without requirements, so that the kubelet's drivers and ours have their
// own dependencies and share nothing else.
//
// # Concurrency
//
// The goroutine that calls Serve serves requests in turn. A driver's PLEG runs beside it.
package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"time"
)

// Options select a driver's PLEG.
type Options struct {
	// Socket is the runtime's unix socket, a path.
	Socket string
	// Mode is "manual" (lists on request, no stream), "generic" (unchanged, without a stream),
	// "evented" (unchanged, with a stream), "intake" (with a stream, and a single listing at the
	// start), "told" (evented, with reports of the agent's own calls), or "none" (no PLEG at all).
	Mode string
}

// Driver is a PLEG.
type Driver interface {
	// Start connects and starts.
	Start(Options) error
	// Relist lists the whole runtime, applies the list, and returns afterwards.
	Relist() error
	// Ready reports whether the first list was applied and, with a stream, the stream is up.
	Ready() bool
	// Handled is the number of applied events of the stream so far.
	Handled() int64
	// Newer returns after the pod's status as of a read begun after t is there.
	Newer(uid string, t time.Time) error
	// Drain calls told with every event of Watch, and does not return.
	Drain(told func(pod, id, kind string))
	// Footprint returns the bytes of another set of the statuses of all pods.
	Footprint() (int64, error)
}

// Request is an order to a driver.
type Request struct {
	// Op is "start", "relist" (N times), "mark", "await" (until N events were handled since mark),
	// "idle" (for Millis), "newer" (N times, over UIDs, Millis apart), "watch" (returns Watch's
	// events since the last time), "heap" (with a profile into Mode), "profile" (of CPU, into Mode
	// until the next), "churn" (begins N changes a second on Pods pods), "since" (its results since
	// mark), "calm" (ends it, and returns the waiting workers).
	Op     string   `json:"op"`
	Socket string   `json:"socket,omitempty"`
	Mode   string   `json:"mode,omitempty"`
	N      int      `json:"n,omitempty"`
	Millis int      `json:"millis,omitempty"`
	Pods   int      `json:"pods,omitempty"`
	UIDs   []string `json:"uids,omitempty"`
}

// Told is an event of Watch.
type Told struct {
	Pod  string `json:"pod"`
	ID   string `json:"id"`
	Kind string `json:"kind"`
	At   int64  `json:"at"` // Unix nanoseconds when it was received
}

// Reply is the answer to a Request.
type Reply struct {
	Error string `json:"error,omitempty"`
	Cost
	// Latencies are those of each call, in nanoseconds.
	Latencies []int64 `json:"latencies,omitempty"`
	Told      []Told  `json:"told,omitempty"`
	// Heap is the live heap in bytes, Statuses the share of the statuses.
	Heap     int64 `json:"heap,omitempty"`
	Statuses int64 `json:"statuses,omitempty"`
	// Waiting are the pod workers still waiting in the end.
	Waiting int `json:"waiting,omitempty"`
}

// Serve runs the driver until the end of its input.
func Serve(d Driver) {
	if err := (&server{driver: d}).run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type server struct {
	driver  Driver
	marked  reading
	handled int64

	mu    sync.Mutex // owns told and churn
	told  []Told
	churn *churn // nil: pods stay as they are

	profile *os.File
}

func (s *server) run(in io.Reader, out io.Writer) error {
	requests, replies := bufio.NewScanner(in), json.NewEncoder(out)
	requests.Buffer(nil, 1<<26)
	for requests.Scan() {
		var r Request
		if err := json.Unmarshal(requests.Bytes(), &r); err != nil {
			return fmt.Errorf("agent: a request that is not JSON: %w", err)
		}
		var reply Reply
		if err := s.do(&r, &reply); err != nil {
			reply.Error = err.Error()
		}
		if err := replies.Encode(&reply); err != nil {
			return err
		}
	}
	return requests.Err()
}

// patience bounds every wait.
const patience = 2 * time.Minute

func (s *server) do(r *Request, reply *Reply) (err error) {
	begin := read()
	defer func() {
		if reply.Cost == (Cost{}) {
			reply.Cost = begin.until(read())
		}
	}()
	switch r.Op {
	case "start":
		if err := s.driver.Start(Options{Socket: r.Socket, Mode: r.Mode}); err != nil {
			return err
		}
		go s.driver.Drain(s.tell)
		if r.Mode == "manual" {
			return nil
		}
		return wait("the first list and the stream", s.driver.Ready)
	case "relist":
		for range r.N {
			if err := s.driver.Relist(); err != nil {
				return err
			}
		}
	case "churn", "since", "calm":
		return s.changing(r, reply)
	case "mark":
		runtime.GC()
		if s.churn != nil {
			s.churn.waits()
		}
		s.handled, s.marked = s.driver.Handled(), read()
	case "await":
		err := wait(fmt.Sprintf("%d events", r.N), func() bool { return s.driver.Handled()-s.handled >= int64(r.N) })
		if err != nil {
			return fmt.Errorf("%w: %d came", err, s.driver.Handled()-s.handled)
		}
		reply.Cost = s.marked.until(read())
	case "idle":
		time.Sleep(time.Duration(r.Millis) * time.Millisecond)
	case "newer":
		for i := range r.N {
			start := time.Now()
			if err := s.driver.Newer(r.UIDs[i%len(r.UIDs)], start); err != nil {
				return err
			}
			reply.Latencies = append(reply.Latencies, int64(time.Since(start)))
			time.Sleep(time.Duration(r.Millis) * time.Millisecond)
		}
	case "watch":
		s.mu.Lock()
		reply.Told, s.told = s.told, nil
		s.mu.Unlock()
	case "heap":
		reply.Heap = live()
		if r.Mode != "" {
			if err := heapProfile(r.Mode); err != nil {
				return err
			}
		}
		reply.Statuses, err = s.driver.Footprint()
		return err
	case "profile":
		return s.toggle(r.Mode)
	default:
		return fmt.Errorf("agent: no such request: %q", r.Op)
	}
	return nil
}

// tell records an event of Watch.
func (s *server) tell(pod, id, kind string) {
	t := Told{Pod: pod, ID: id, Kind: kind, At: time.Now().UnixNano()}
	s.mu.Lock()
	s.told = append(s.told, t)
	c := s.churn
	s.mu.Unlock()
	if c != nil {
		c.told(pod, kind)
	}
}

// changing serves the requests about churn.
func (s *server) changing(r *Request, reply *Reply) error {
	d, ok := s.driver.(Churner)
	if !ok {
		return errors.New("agent: this driver makes no pods")
	}
	switch r.Op {
	case "churn":
		if r.N <= 0 || r.Pods <= 0 {
			return fmt.Errorf("agent: %d changes a second on %d pods", r.N, r.Pods)
		}
		c, err := newChurn(d, r.Pods, r.N)
		s.mu.Lock()
		s.churn = c
		s.mu.Unlock()
		return err
	case "since":
		reply.Cost = s.marked.until(read())
		reply.Latencies = s.churn.waits()
	case "calm":
		var err error
		reply.Waiting, err = s.churn.calm()
		return err
	}
	return nil
}

// toggle starts a CPU profile into the named file, or with no name ends it.
func (s *server) toggle(name string) error {
	if s.profile != nil {
		pprof.StopCPUProfile()
		err := s.profile.Close()
		s.profile = nil
		if err != nil || name == "" {
			return err
		}
	}
	if name == "" {
		return errors.New("agent: no profile is being taken")
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	s.profile = f
	return pprof.StartCPUProfile(f)
}

// heapProfile writes a heap profile.
func heapProfile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}

// wait looks every few milliseconds, which costs every driver the same.
func wait(what string, done func() bool) error {
	for deadline := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("agent: %s did not come within %v", what, patience)
		}
	}
	return nil
}

// live returns the bytes of the live heap. Pools outlive a collection, so there are several.
func live() int64 {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Growth returns the bytes by which f makes the live heap grow. The result of f is kept until
// measured.
func Growth(f func() (any, error)) (int64, error) {
	before := live()
	kept, err := f()
	after := live()
	runtime.KeepAlive(kept)
	return after - before, err
}

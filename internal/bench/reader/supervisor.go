// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
)

// Supervisor starts readers and ends the readers that do not read. Its Dial is for
// [cri.Config.Dialer]: a connection is a reader.
type Supervisor struct {
	// socket is the path of the runtime's socket, args are those with which this program is a reader.
	socket string
	args   []string
	work   sync.WaitGroup
	// stat is os.Stat, but in tests.
	stat func(string) (os.FileInfo, error)

	mu      sync.Mutex // owns the fields below
	readers map[*child.Process]bool
	closed  bool
	why     string // why the latest ended reader was ended, until Why takes the reason
	ended   int    // readers ended here, or by their own timer
	// ends are when readers ended otherwise than at the observer's wish, at most mostEnds.
	ends []time.Time
}

// NewSupervisor returns a supervisor of readers of the runtime behind a socket. Args are the
// arguments with which this program calls [Main]. NewSupervisor starts nothing.
func NewSupervisor(socket string, args ...string) *Supervisor {
	return &Supervisor{
		socket:  socket,
		args:    args,
		stat:    os.Stat,
		readers: make(map[*child.Process]bool),
	}
}

// Dial connects to the runtime by a reader of its own, which ends with the connection.
func (s *Supervisor) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	runtime, err := conn.(*net.UnixConn).File()
	if err != nil {
		return nil, fmt.Errorf("reader: hand the connection over: %w", err)
	}
	defer runtime.Close()
	return s.start(runtime)
}

// start starts a reader with a connection to the runtime, and returns the connection to the reader.
func (s *Supervisor) start(runtime *os.File) (net.Conn, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	beats, beat, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reader: %w", err), ours.Close())
	}
	defer beat.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, errors.Join(
			fmt.Errorf("reader: cannot find this program: %w", err),
			ours.Close(),
			beats.Close(),
		)
	}
	complaint := new(tail)
	cmd := exec.Command(self, s.args...)
	cmd.ExtraFiles = []*os.File{runtimeFile - 3: runtime, observerFile - 3: theirs, beatFile - 3: beat}
	cmd.Stderr = complaint
	socket := s.look() // nil: the file has gone or cannot be seen, and is not compared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, ours.Close(), beats.Close())
	}
	process, err := child.Spawn(cmd)
	if err != nil {
		return nil, errors.Join(
			fmt.Errorf("reader: start the process that reads: %w", err),
			ours.Close(),
			beats.Close(),
		)
	}
	s.readers[process] = true
	known := make(chan struct{})
	s.work.Go(func() {
		defer close(known)
		s.supervise(process, beats, socket, complaint)
	})
	return &observed{Conn: ours, known: known}, nil
}

// observed is the observer's connection to a reader. Its end is seen once it is known why the
// reader ended: whoever asks by then does not take the runtime for the cause.
type observed struct {
	net.Conn
	known <-chan struct{} // closed once the end of the reader was entered
}

// Read implements net.Conn.
func (c *observed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.await(err)
	return n, err
}

// Write implements net.Conn.
func (c *observed) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.await(err)
	return n, err
}

// await waits if an error is the end of the reader, which closes its connection to end, or is ended
// for the silence that follows.
func (c *observed) await(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		<-c.known
	}
}

const (
	// lookEvery is how often a supervisor looks at a reader's reports of life. After a stop of its own
	// process a supervisor has looked less often, and kills no reader for the gap.
	lookEvery = 250 * time.Millisecond
	// replacedFor is how long another socket may stand at the path of a live connection.
	replacedFor = 5 * time.Second
)

// supervise ends a reader without reports, or with a replaced runtime, and returns when the reader
// has ended.
func (s *Supervisor) supervise(p *child.Process, beats *os.File, socket os.FileInfo, complaint *tail) {
	defer beats.Close()
	reports := make(chan struct{}, 1)
	s.work.Go(func() { // ends with the process, or the file
		for one := make([]byte, 64); ; {
			if _, err := beats.Read(one); err != nil {
				return
			}
			select {
			case reports <- struct{}{}:
			default:
			}
		}
	})
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var silent, replaced time.Duration // for how long
	endedHere := false
	for p.Alive() {
		select {
		case <-p.Done():
			continue
		case <-ticker.C:
		}
		select {
		case <-reports:
			silent = 0
		default:
			silent += lookEvery
		}
		replaced += lookEvery
		if !s.replaced(socket) {
			replaced = 0
		}
		switch {
		case silent > Patience:
			endedHere = true
			s.end(p, notRead)
		case replaced > replacedFor:
			endedHere = true
			s.end(p, "another runtime has taken the socket, and the connection to the earlier one was closed")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, p)
	err := p.Wait(context.Background())
	exit, _ := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil || s.closed || endedHere:
	case exit != nil && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL: // by its own timer
		s.ended++
		s.because(notRead)
	default:
		s.because(fmt.Sprintf("the process that reads the stream ended: %v: %s", err, complaint.String()))
	}
}

// mostEnds bounds the kept ends of readers.
const mostEnds = 1000

// because enters the end of a reader. The caller holds mu.
func (s *Supervisor) because(why string) {
	s.why = why
	if len(s.ends) < mostEnds {
		s.ends = append(s.ends, time.Now())
	}
}

// Ends returns the times at which readers ended otherwise than at the observer's wish, the first
// 1000 of them: a call under way at the time did not fail by the runtime.
func (s *Supervisor) Ends() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ends)
}

// notRead is why a reader is ended, by its supervisor or by the kernel.
var notRead = fmt.Sprintf(
	"the watch itself did not read for %v: its process was stopped, or got no CPU, and was ended for the runtime's sake",
	Patience,
)

// replaced reports whether another socket is at the path.
func (s *Supervisor) replaced(socket os.FileInfo) bool {
	now := s.look()
	return socket != nil && now != nil && !os.SameFile(socket, now)
}

// look returns the file at the path, nil if there is none or the kernel does not answer.
func (s *Supervisor) look() os.FileInfo {
	info, _ := deadmount.Ask(s.socket, func() os.FileInfo {
		info, err := s.stat(s.socket)
		if err != nil {
			return nil
		}
		return info
	})
	return info
}

// end kills a reader.
func (s *Supervisor) end(p *child.Process, why string) {
	s.mu.Lock()
	s.because(why)
	s.ended++
	s.mu.Unlock()
	_ = p.Kill()
}

// Why returns why a reader ended a stream or call with err, by itself or by the reader's own end;
// empty if the runtime ended the stream or call.
func (s *Supervisor) Why(err error) string {
	var answer interface{ GRPCStatus() *status.Status } // not status.FromError, which adds the text around
	if !errors.As(err, &answer) || answer.GRPCStatus().Code() != codes.Unavailable {
		return ""
	}
	if text := answer.GRPCStatus().Message(); strings.HasPrefix(text, leftStream) {
		return text
	}
	return s.takeWhy()
}

func (s *Supervisor) takeWhy() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := s.why
	s.why = ""
	return why
}

// Ended counts the readers ended because they did not read.
func (s *Supervisor) Ended() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// PIDs are the processes of the readers.
func (s *Supervisor) PIDs() (list []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.readers {
		list = append(list, p.PID())
	}
	return list
}

// Close ends every reader, and returns when all have ended.
func (s *Supervisor) Close() error {
	s.mu.Lock()
	s.closed = true
	readers := s.readers
	s.readers = make(map[*child.Process]bool)
	s.mu.Unlock()
	for p := range readers {
		_ = p.Kill()
	}
	s.work.Wait()
	return nil
}

// socketPair returns two ends of a connection.
func socketPair() (ours net.Conn, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("reader: make a connection: %w", err)
	}
	file := os.NewFile(uintptr(fds[0]), "reader")
	theirs = os.NewFile(uintptr(fds[1]), "observer")
	defer file.Close()
	ours, err = net.FileConn(file)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("reader: make a connection: %w", err), theirs.Close())
	}
	return ours, theirs, nil
}

// tail keeps the begin of a process's complaints.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	const most = 1000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(b[:min(len(b), max(0, most-t.text.Len()))])
	return len(b), nil
}

// String implements fmt.Stringer.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text.Bytes()))
}

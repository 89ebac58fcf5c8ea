// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package unshare runs a program in namespaces of its own, which end with everything in them.
//
// # Model
//
// A run is a directory, a cgroup of the same name, and namespaces for process IDs, mounts and
// cgroups:
//
//	supervisor            makes directory and cgroup, removes both in the end
//	  └─ first process    of the namespaces: mounts, reaps
//	       └─ program     with everything that it starts, containers too
//
// All three are one program. At any end of the first process the kernel ends every process of the
// namespaces and removes their mounts; it ends with the program, and with the supervisor. The run's
// cgroup is the root of all cgroups that the program sees, so that a runtime makes its own below,
// wherever it means to put them. Files are shared: clients elsewhere reach the sockets.
//
// # Concurrency
//
// Runs are independent of each other.
//
// # Errors
//
// The supervisor prints them. Its exit status is the program's, or one of this package.
package unshare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Where runs live, and the prefix of their directories and cgroups: short, as socket paths must be,
// and nobody else's.
const (
	parent = "/tmp"
	prefix = "pleg-e2e-"
)

// Exit codes. The program uses them too.
const (
	ExitFailed      = 1
	ExitCannotRun   = 2
	ExitInterrupted = 130
)

const (
	// grace is how long an interrupted program may take to end by itself.
	grace = 30 * time.Second
	// envDir names the run's directory in its namespaces.
	envDir = "NODE_E2E_DIR"
)

// Dir is the directory of the run, empty outside any.
func Dir() string { return os.Getenv(envDir) }

// Main runs main in namespaces of its own, by this program with the same arguments, and returns
// the exit code.
func Main(main func() int) int {
	runtime.LockOSThread() // the children depend on the thread that makes them
	switch {
	case Dir() == "":
		return supervise(parent)
	case os.Getpid() == 1:
		return first()
	}
	runtime.UnlockOSThread()
	return main()
}

func supervise(parent string) int {
	// a reader of our output that has gone must not end us
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	// Before there is anything to remove, and until all is removed.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := preflight(os.Geteuid(), cgroups, "/proc"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitCannotRun
	}
	removeAbandoned(parent)
	code := ExitCannotRun
	dir, err := newDir(parent, prefix)
	if err == nil {
		err = MakeCgroup(filepath.Base(dir))
	}
	if err == nil {
		code, err = start(ctx, dir)
	}
	if err = errors.Join(err, remove(dir)); err != nil {
		fmt.Fprintln(os.Stderr, "unshare:", err)
		return max(code, ExitFailed)
	}
	return code
}

// start runs the first process, until an interrupt.
func start(ctx context.Context, dir string) (code int, err error) {
	if ctx.Err() != nil {
		return ExitInterrupted, nil
	}
	self, err := os.Executable()
	if err != nil {
		return ExitCannotRun, err
	}
	listens, held, err := os.Pipe()
	if err != nil {
		return ExitCannotRun, err
	}
	defer listens.Close()
	defer held.Close()
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), envDir+"="+dir)
	cmd.Stdin = os.Stdin
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{held}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
		// A group of its own: a terminal's Ctrl-C reaches this process alone.
		Setpgid: true,
	}
	cmd.Cancel = func() error {
		fmt.Fprintln(os.Stderr, "unshare: interrupted: cleaning up")
		// The end of file comes once the first process listens, or has ended.
		_ = listens.SetReadDeadline(time.Now().Add(grace))
		_, _ = listens.Read(make([]byte, 1))
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = grace // then a kill
	err = cmd.Start()
	if err != nil && ctx.Err() != nil {
		return ExitInterrupted, nil
	}
	if err != nil {
		return ExitCannotRun, err
	}
	_ = held.Close()
	_ = cmd.Wait() // the state tells
	code = cmd.ProcessState.ExitCode()
	if code < 0 {
		return ExitFailed, fmt.Errorf("the run was ended: %v", cmd.ProcessState)
	}
	return code, nil
}

// listensFile is a file of the first process. By closing it the process says that it takes SIGTERM,
// which the kernel drops until then: the first process of a namespace has no default actions.
const listensFile = 3

// first is the work of the first process of the namespaces.
func first() int {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	_ = syscall.Close(listensFile)
	if err := enter(filepath.Base(Dir())); err != nil {
		fmt.Fprintln(os.Stderr, "unshare:", err)
		return ExitCannotRun
	}
	attr := &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}}
	status, err := reap(signals, os.Args, attr)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "unshare:", err)
		return ExitFailed
	case status.Signaled():
		fmt.Fprintf(os.Stderr, "unshare: the program was ended by %v\n", status.Signal())
		return ExitFailed
	}
	return status.ExitStatus()
}

// strayed are the machine's folders to which a runtime writes with any configuration: the sockets
// of shims and the pipes of containerd before 2.3, and CRI-O's cache of images. In the namespaces
// they are empty, and go with them.
var strayed = []string{"/run/containerd", "/var/lib/containers/cache"}

// enter puts this process into the run's cgroup, and gives it the mounts of its namespaces.
func enter(cgroup string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := EnterCgroup(cgroup); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := MountCgroups(); err != nil {
		return err
	}
	for _, dir := range strayed {
		err := errors.Join(os.MkdirAll(dir, 0o711), unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=711"))
		if err != nil {
			return fmt.Errorf("an empty %s: %w", dir, err)
		}
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") // with containers
}

// Reap runs a program from the first process of a namespace, passes SIGTERM on, reaps what is
// orphaned meanwhile, and returns how the program ended. The program has the namespaces of the
// calling thread.
func Reap(argv []string, attr *os.ProcAttr) (status syscall.WaitStatus, err error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	return reap(signals, argv, attr)
}

// reap is Reap with the signals that it passes on.
func reap(signals <-chan os.Signal, argv []string, attr *os.ProcAttr) (status syscall.WaitStatus, err error) {
	program, err := os.StartProcess(argv[0], argv, attr)
	if err != nil {
		return status, err
	}
	go func() { // ends with the process
		for s := range signals {
			_ = program.Signal(s)
		}
	}()
	for {
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return status, err
		}
		if pid == program.Pid && err == nil {
			return status, nil
		}
	}
}

// Claim makes a directory for a program that needs no namespaces, as a run has one, and returns
// those of the prefix whose programs were killed. They are the caller's then, to clean up and
// remove.
func Claim(prefix string) (dir string, abandoned []string, err error) {
	abandoned, err = claimAbandoned(parent, prefix)
	if err != nil {
		return "", nil, err
	}
	dir, err = newDir(parent, prefix)
	return dir, abandoned, err
}

// newDir makes a run's directory, locked before it is named, until this process ends: a named
// directory without a lock is of a supervisor that was killed.
func newDir(parent, prefix string) (string, error) {
	made, err := os.MkdirTemp(parent, "new-"+prefix)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(parent, strings.TrimPrefix(filepath.Base(made), "new-"))
	_, err = lock(made)
	// Containers of any user pass through.
	return dir, errors.Join(err, os.Chmod(made, 0o711), os.Rename(made, dir))
}

// lock locks a directory until the file is closed, or fails at once.
func lock(dir string) (fd int, err error) {
	if fd, err = syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0); err != nil {
		return fd, err
	}
	return fd, syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
}

// removeAbandoned removes the files of killed supervisors.
func removeAbandoned(parent string) {
	dirs, err := claimAbandoned(parent, prefix)
	for _, dir := range dirs {
		err = errors.Join(err, remove(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "unshare:", err)
	}
}

// unnamed is how long a supervisor may take at most to name the directory that it has made.
const unnamed = time.Hour

// claimAbandoned returns the directories of killed programs, and locks them until this process
// ends. A directory that was never named is empty, and removed.
func claimAbandoned(parent, prefix string) (claimed []string, err error) {
	dirs, _ := filepath.Glob(filepath.Join(parent, prefix+"*")) // the pattern is good
	for _, dir := range dirs {
		fd, busy := lock(dir)
		switch {
		case busy == nil:
			fmt.Fprintln(os.Stderr, "unshare: an abandoned run:", dir)
			claimed = append(claimed, dir)
			continue
		case !errors.Is(busy, syscall.EWOULDBLOCK) && !errors.Is(busy, syscall.ENOENT):
			err = errors.Join(err, fmt.Errorf("unshare: lock %s: %w", dir, busy))
		}
		_ = syscall.Close(fd)
	}
	begun, _ := filepath.Glob(filepath.Join(parent, "new-"+prefix+"*")) // the pattern is good
	for _, dir := range begun {
		info, missing := os.Stat(dir)
		if missing == nil && time.Since(info.ModTime()) > unnamed {
			err = errors.Join(err, os.Remove(dir))
		}
	}
	return claimed, err
}

// remove removes what a run leaves when its namespaces are gone: its cgroup and its directory.
func remove(dir string) error {
	if dir == "" {
		return nil
	}
	return errors.Join(removeCgroup(filepath.Base(dir)), os.RemoveAll(dir))
}

// preflight returns why this machine cannot run a private container runtime, or nil: that needs
// root, cgroups with the memory and pids controllers, and overlayfs.
func preflight(euid int, cgroups, proc string) error {
	var errs []error
	if euid != 0 {
		errs = append(
			errs,
			fmt.Errorf("root is needed to run containers, and the user ID is %d; run as root", euid),
		)
	}
	unified, err := os.ReadFile(filepath.Join(cgroups, "cgroup.controllers"))
	for _, controller := range []string{"memory", "pids"} {
		_, missing := os.Stat(filepath.Join(cgroups, controller, "cgroup.procs"))
		if missing != nil && (err != nil || !slices.Contains(strings.Fields(string(unified)), controller)) {
			errs = append(
				errs,
				fmt.Errorf(
					"the cgroup controller %s is not at %s; mount the cgroup hierarchy there",
					controller,
					cgroups,
				),
			)
		}
	}
	if known, err := os.ReadFile(filepath.Join(proc, "filesystems")); err != nil || !strings.Contains(string(known), "\toverlay\n") {
		errs = append(errs, errors.New("the kernel does not list overlayfs in /proc/filesystems; load it with `modprobe overlay`"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("this machine cannot run these tests:\n%w", err)
	}
	return nil
}

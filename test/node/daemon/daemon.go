// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package daemon runs a private container runtime under a single directory.
//
// # Model
//
// A Daemon is a containerd or a CRI-O that may be started, stopped, killed and started again; its
// root, state, sockets and shims stay under Config.Base, and pods outlive it as on a node. It is
// ready when the workload image is loaded (first start) and a list is answered (every start). A
// family holds a runtime's particulars. What a Daemon leaves goes with the namespaces of its run
// (package unshare).
//
// # Concurrency
//
// A single goroutine drives a Daemon: Start and Stop must not overlap. Alive, PID and Endpoint may
// be called from anywhere.
//
// # Errors
//
// An error of Start carries the last lines of the runtime's log.
package daemon

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"text/template"
	"time"

	"golang.org/x/mod/semver"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/image"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// maxBase bounds the length of the directory's path, in bytes: a shim's socket adds 67, and the
// kernel takes no socket path above 107.
const maxBase = 40

// Config says where a Daemon lives.
type Config struct {
	// Base is the daemon's directory: absolute and short.
	Base string
	// Components are the programs of the runtime Components.Runtime.
	Components components.Set
	// Image is the name under which the workload is loaded as an image.
	Image string
	// StatsPeriod is how often containerd 2.3 and later collects the statistics of all containers
	// (stats_collect_period). Empty: its default, a second.
	StatsPeriod string
}

// A family is what all versions of a runtime have in common.
type family struct {
	// socket is the name of the CRI socket below Config.Base, dirs and files are the directories and
	// the files there; each file has a template.
	socket, dirs, files string
	// logs is the directory for logs of containers without a log path, empty if there is none.
	logs string
	// pack writes the workload image for load.
	pack func(Config) error
	// command starts the runtime.
	command func(Config) *exec.Cmd
	// load loads the workload image. It fails until the runtime is ready.
	load func(context.Context, Config) error
}

//go:embed templates
var texts embed.FS

// templates are the configuration, of a [Config].
var templates = template.Must(template.ParseFS(texts, "templates/*"))

// Before reports whether the runtime is older than a version.
func (c Config) Before(version string) bool {
	return semver.Compare(c.Components.Runtime.Version, version) < 0
}

// Conmon is the path of CRI-O's container monitor.
func (c Config) Conmon() (string, error) { return components.Conmon() }

// Entrypoint is the path of the program in the image.
func (c Config) Entrypoint() string { return image.Entrypoint }

// text returns a file of the configuration.
func (c Config) text(name string) (string, error) {
	var out strings.Builder
	err := templates.ExecuteTemplate(&out, name, c)
	return out.String(), err
}

func familyOf(r runtimes.Runtime) family {
	if r.Family == runtimes.CRIO {
		return crio
	}
	return containerd
}

// A Daemon is a private runtime.
type Daemon struct {
	config Config
	family family
	loaded bool

	process atomic.Pointer[child.Process] // nil before the first start
}

// Run builds a runtime by its name in package runtimes, if that is necessary, and starts it below
// base with the workload image.
func Run(ctx context.Context, name, base string, log io.Writer) (*Daemon, error) {
	return Config{Base: base}.Run(ctx, name, log)
}

// Run is the function Run with the configuration, whose components and image are set here.
func (c Config) Run(ctx context.Context, name string, log io.Writer) (*Daemon, error) {
	set, err := components.Build(ctx, name, log)
	if err != nil {
		return nil, err
	}
	c.Components = set
	c.Image = image.DefaultRef
	d, err := New(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return d, d.Start(ctx)
}

// New makes the directory with the configuration and the image, and starts nothing.
func New(c Config) (*Daemon, error) {
	if !filepath.IsAbs(c.Base) || len(c.Base) > maxBase {
		return nil, fmt.Errorf(
			"daemon: the directory %q must be absolute and at most %d bytes, or the sockets under it cannot be bound",
			c.Base,
			maxBase,
		)
	}
	d := &Daemon{config: c, family: familyOf(c.Components.Runtime)}
	for dir := range strings.FieldsSeq(d.family.dirs) {
		if err := os.MkdirAll(filepath.Join(c.Base, dir), 0o711); err != nil {
			return nil, fmt.Errorf("daemon: %w", err)
		}
	}
	for name := range strings.FieldsSeq(d.family.files) {
		text, err := c.text(name)
		if err = errors.Join(err, os.WriteFile(filepath.Join(c.Base, name), []byte(text), 0o644)); err != nil {
			return nil, fmt.Errorf("daemon: write the configuration: %w", err)
		}
	}
	if err := d.family.pack(c); err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	return d, nil
}

// Endpoint is the address of the CRI socket.
func (d *Daemon) Endpoint() string { return "unix://" + filepath.Join(d.config.Base, d.family.socket) }

// LogPath is where the runtime's log goes, over all its starts.
func (d *Daemon) LogPath() string { return filepath.Join(d.config.Base, "runtime.log") }

// Logs is the runtime's directory for logs of containers without a log path, empty if there is
// none. A kubelet removes such a container's log.
func (d *Daemon) Logs() string {
	if d.family.logs == "" {
		return ""
	}
	return filepath.Join(d.config.Base, d.family.logs)
}

// PID is the daemon's process ID, or 0 while down.
func (d *Daemon) PID() int {
	if p := d.process.Load(); p != nil && p.Alive() {
		return p.PID()
	}
	return 0
}

// Alive reports whether the process runs.
func (d *Daemon) Alive() bool { return d.PID() != 0 }

// Start starts the runtime and waits for its readiness or the end of ctx.
func (d *Daemon) Start(ctx context.Context) error {
	if err := d.spawn(); err != nil {
		return err
	}
	if err := d.ready(ctx); err != nil {
		return fmt.Errorf("daemon: %w\nthe end of its log:\n%s", err, d.logTail(12))
	}
	return nil
}

// spawn starts the runtime without waiting.
func (d *Daemon) spawn() error {
	if d.Alive() {
		return errors.New("daemon: already started")
	}
	log, err := os.OpenFile(d.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	defer log.Close()
	cmd := d.family.command(d.config)
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.Dir = d.config.Base
	// runc is looked for on PATH in some code paths, configured or not.
	cmd.Env = append(
		append(os.Environ(), cmd.Env...),
		"PATH="+d.config.Components.RuncDir+string(os.PathListSeparator)+os.Getenv("PATH"),
	)
	process, err := child.Spawn(cmd)
	if err != nil {
		return fmt.Errorf("daemon: start the runtime: %w", err)
	}
	d.process.Store(process)
	return nil
}

// ready waits for the image to be loaded, which needs all of the runtime, and for a list.
func (d *Daemon) ready(ctx context.Context) error {
	client, err := crikit.Dial(crikit.Options{Endpoint: d.Endpoint()})
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		if !d.loaded {
			err = d.family.load(ctx, d.config)
			d.loaded = err == nil
		}
		if d.loaded {
			_, err = client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		}
		switch {
		case err == nil:
			return nil
		case !d.Alive():
			return errors.New("the runtime ended at its start")
		case bench.Sleep(ctx, 50*time.Millisecond) != nil:
			return fmt.Errorf("the runtime is not ready in time: %w", err)
		}
	}
}

// Stop sends the signal and waits until the process is gone. Containers and shims live on. The end
// of ctx kills the process.
func (d *Daemon) Stop(ctx context.Context, signal syscall.Signal) error {
	if !d.Alive() {
		return nil
	}
	if err := d.process.Load().End(ctx, signal); err != nil {
		return fmt.Errorf("daemon: stop the runtime: %w", err)
	}
	return nil
}

func (d *Daemon) logTail(n int) string {
	data, err := os.ReadFile(d.LogPath())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, line := range lines {
		lines[i] = line[:min(len(line), longLine)] // CRI-O logs its configuration in a single line
	}
	return strings.Join(lines, "\n")
}

const longLine = 400

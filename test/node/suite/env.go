// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/daemon"
	"github.com/evented-pleg/evented-pleg/test/node/image"
	"github.com/evented-pleg/evented-pleg/test/node/report"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// Options say what a run does.
type Options struct {
	// Root is the repository.
	Root string
	// Base is the run's directory and Cgroup its cgroup: what package sweep takes
	// away afterwards. Each scenario has a folder and a cgroup below them.
	Base, Cgroup string
	// Endpoint is a runtime that is already there. Empty: a private one.
	Endpoint string
	// Runtime is the private runtime's name, as runtimes.ByName takes it. Empty: the default one.
	Runtime string
	// Image is the reference of the workload image, which an existing runtime may
	// already have under another name. Empty: ours, imported.
	Image string
	// Run picks scenarios by name. Nil: all.
	Run *regexp.Regexp
	// Bounded is the short form for CI.
	Bounded bool
	// Verbose prints the scenarios' logs as they come.
	Verbose bool
	// Results is the directory for results and the logs of failures.
	Results string
	// Out gets a line for each scenario.
	Out io.Writer
}

// An Env is what every scenario of a run shares. It does not change while
// scenarios run.
type Env struct {
	Options
	// Set are the built programs.
	Set components.Set
	// Kind is the runtime, or the known one that is nearest to the runtime which is already there.
	Kind runtimes.Runtime
	// Version is the runtime's name and version, known after the first node.
	Version string
}

// ErrFailed says that at least one scenario failed.
var ErrFailed = errors.New("suite: scenarios failed")

// Run builds what is needed, runs the scenarios and writes the results.
func Run(ctx context.Context, o Options) error {
	picked := pick(o.Run)
	if len(picked) == 0 {
		return fmt.Errorf("suite: no scenario matches %q; see `node-e2e --list`", o.Run)
	}
	env := &Env{Options: o}
	if err := os.RemoveAll(o.Results); err != nil {
		return fmt.Errorf("suite: empty the results directory: %w", err)
	}
	if err := os.MkdirAll(o.Results, 0o755); err != nil {
		return fmt.Errorf("suite: make the results directory: %w", err)
	}
	if err := env.prepare(ctx); err != nil {
		return err
	}
	suite := &report.Suite{Name: "node-e2e", Started: time.Now()}
	for _, s := range picked {
		if ctx.Err() != nil {
			break
		}
		result := run(ctx, env, s)
		fmt.Fprintln(o.Out, result.Line())
		result.WriteDetails(o.Out)
		suite.Results = append(suite.Results, result)
	}
	suite.Runtime = env.Version
	fmt.Fprintln(o.Out, suite.Summary())
	if err := env.write(suite); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("suite: interrupted after %d scenarios: %w", len(suite.Results), cause)
	}
	if suite.Count(report.Failed) > 0 {
		return ErrFailed
	}
	return nil
}

func pick(pattern *regexp.Regexp) []Scenario {
	var picked []Scenario
	for _, s := range Scenarios {
		if pattern == nil || pattern.MatchString(s.Name) {
			picked = append(picked, s)
		}
	}
	return picked
}

func (e *Env) prepare(ctx context.Context) error {
	if e.Endpoint != "" {
		return e.prepareExisting(ctx)
	}
	set, err := components.Build(ctx, components.Options{Root: e.Root, Runtime: cmp.Or(e.Runtime, runtimes.Default().Name), Own: true, Log: e.Out})
	if err != nil {
		return err
	}
	e.Set, e.Kind = set, set.Runtime
	e.Image = cmp.Or(e.Image, image.DefaultRef)
	return nil
}

// prepareExisting looks at the runtime that is already there, and loads the workload image unless that is there too.
func (e *Env) prepareExisting(ctx context.Context) error {
	version, err := e.version(ctx)
	if err != nil {
		return err
	}
	e.Kind = runtimes.Of(version.RuntimeName, version.RuntimeVersion)
	options := components.Options{Root: e.Root, Own: true, Log: e.Out}
	if e.Image == "" && e.Kind.Family == runtimes.Containerd {
		options.Runtime = e.Kind.Name // for its ctr
	}
	if e.Set, err = components.Build(ctx, options); err != nil {
		return err
	}
	if e.Image != "" {
		return nil
	}
	e.Image = image.DefaultRef
	return e.importImage(ctx, version.RuntimeName)
}

// version asks the runtime that is already there who it is.
func (e *Env) version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	client, err := crikit.Dial(crikit.Options{Endpoint: e.Endpoint})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	version, err := client.RuntimeServiceClient.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return nil, fmt.Errorf("suite: no CRI runtime answers at %s: %w", e.Endpoint, err)
	}
	e.Version = version.RuntimeName + " " + version.RuntimeVersion
	return version, nil
}

// importImage loads the workload image into the runtime that is already there.
func (e *Env) importImage(ctx context.Context, runtimeName string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if runtimeName == string(runtimes.Containerd) {
		archive := filepath.Join(e.Base, "image.tar")
		if err := image.PackFile(archive, e.Set.Workload(), image.DefaultRef); err != nil {
			return err
		}
		if err := daemon.Import(ctx, e.Set, e.Endpoint, archive); err != nil {
			return fmt.Errorf("suite: %w", err)
		}
		return nil
	}
	kept := filepath.Join(e.Results, "workload-image.tar")
	if err := image.PackFile(kept, e.Set.Workload(), image.DefaultRef); err != nil {
		return err
	}
	return fmt.Errorf("suite: do not know how to load an image into %s: load the docker archive %s with its own tool, "+
		"then run again with NODE_E2E_IMAGE=<its reference>", runtimeName, kept)
}

// interrupted reports whether the run was told to end, which makes scenarios
// fail in many ways that mean nothing.
func (e *Env) interrupted(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), context.Canceled)
}

// notApplicable says why a scenario cannot run here, or "".
func (e *Env) notApplicable(s Scenario) string {
	if e.Endpoint == "" {
		return ""
	}
	switch {
	case s.Restarts:
		return "it restarts the runtime, and this runtime is not ours to restart"
	case s.Private:
		return s.Why
	}
	return ""
}

// keep copies a scenario's logs to the results and returns where they are.
func (e *Env) keep(t *T) string {
	to := filepath.Join(e.Results, t.scenario.Name)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return ""
	}
	logs, _ := filepath.Glob(filepath.Join(t.Dir, "*.log"))
	for _, log := range logs {
		if data, err := os.ReadFile(log); err == nil {
			_ = os.WriteFile(filepath.Join(to, filepath.Base(log)), data, 0o644)
		}
	}
	if rel, err := filepath.Rel(e.Root, to); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return to
}

func (e *Env) write(s *report.Suite) error {
	for name, write := range map[string]func(io.Writer) error{
		"junit.xml": s.WriteJUnit, "results.json": s.WriteJSON, "figures.md": s.WriteMarkdown,
	} {
		f, err := os.Create(filepath.Join(e.Results, name))
		if err != nil {
			return fmt.Errorf("suite: write the results: %w", err)
		}
		if err := errors.Join(write(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

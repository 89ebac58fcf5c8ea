// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
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
	"github.com/evented-pleg/evented-pleg/test/node/ctrd"
	"github.com/evented-pleg/evented-pleg/test/node/image"
	"github.com/evented-pleg/evented-pleg/test/node/report"
)

// Options say what a run does.
type Options struct {
	// Root is the repository.
	Root string
	// Base is the run's directory and Cgroup its cgroup: what package sweep takes
	// away afterwards.
	Base, Cgroup string
	// Endpoint is a runtime that is already there. Empty: a private containerd.
	Endpoint string
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
	// Archive is the workload image.
	Archive string
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
	env := &Env{Options: o, Archive: filepath.Join(o.Base, "image.tar")}
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
	private := e.Endpoint == ""
	importer := !private && e.Image == ""
	set, err := components.Build(ctx, components.Options{Root: e.Root, Runtime: private || importer, Own: true, Log: e.Out})
	if err != nil {
		return err
	}
	e.Set = set
	if e.Image == "" {
		if err := image.PackFile(e.Archive, set.Workload(), image.DefaultRef); err != nil {
			return err
		}
		e.Image = image.DefaultRef
	}
	if private {
		return nil
	}
	version, err := e.version(ctx)
	if err != nil {
		return err
	}
	if importer {
		return e.importImage(ctx, version.RuntimeName)
	}
	return nil
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
	if runtimeName == "containerd" {
		if out, err := ctrd.Import(ctx, e.Set, e.Endpoint, e.Archive); err != nil {
			return fmt.Errorf("suite: import the workload image: %w: %s", err, out)
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
	case s.Subscribers && sharesStream(e.Version):
		return "it subscribes more than once, and " + e.Version + " gives each event to one subscriber only"
	}
	return ""
}

// sharesStream reports whether a runtime's subscribers compete for its events.
func sharesStream(version string) bool {
	return strings.HasPrefix(strings.Replace(version, " v", " ", 1), "containerd 1.")
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

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"github.com/evented-pleg/evented-pleg/test/peer/floor"
	"github.com/evented-pleg/evented-pleg/test/peer/ours"
	"github.com/evented-pleg/evented-pleg/test/peer/server"
)

// The contestants.
const (
	kubelet136 = "kubelet-v1.36.3"
	kubelet137 = "kubelet-v1.37.1"
	oursName   = "ours"
	generated  = "generated"
	floorName  = "floor"
)

var everybody = []string{floorName, generated, oursName, kubelet136, kubelet137}

// bench is a run.
type bench struct {
	self, dir string
	kubelets  [2]string
	sockets   int
	agents    []string
	rounds    int
	idle      time.Duration
	window    time.Duration
	profiles  string
	results   []result
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "serve":
			if err := server.Serve(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		case "agent":
			agent.Serve(driver(os.Args[2]))
			return
		}
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func driver(name string) agent.Driver {
	switch name {
	case floorName:
		return floor.New(false, false)
	case floorName + streaming:
		return floor.New(false, true)
	case generated:
		return floor.New(true, false)
	}
	return ours.New()
}

func run() (err error) {
	b := new(bench)
	rows := flag.String("rows", "relist,changed,intake,first,newer,latency,memory", "what to measure, of "+strings.Join(rowNames(), ", "))
	agents := flag.String("agents", strings.Join(everybody, ","), "who takes part, of "+strings.Join(everybody, ", "))
	benchFile := flag.String("bench", "-", "write the lines for benchstat to this `file` (- for standard output)")
	built := flag.String("kubelets", "", "`directory` for the kubelets' programs, kept; default: a temporary one")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of each measurement")
	flag.DurationVar(&b.idle, "idle", 5*time.Minute, "length of row idle")
	flag.DurationVar(&b.window, "window", 10*time.Second, "length of each measurement of row churn")
	flag.StringVar(&b.profiles, "profiles", "", "write CPU profiles of the contestants into this `directory`")
	flag.Parse()
	b.agents = strings.Split(*agents, ",")
	for _, name := range b.agents {
		if !slices.Contains(everybody, name) {
			return fmt.Errorf("no such contestant: %q; there are %s", name, strings.Join(everybody, ", "))
		}
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "peer-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if *built == "" {
		*built = b.dir
	}
	if err := b.build(*built); err != nil {
		return err
	}
	for name := range strings.SplitSeq(*rows, ",") {
		i := slices.IndexFunc(allRows, func(r row) bool { return r.name == name })
		if i < 0 {
			return fmt.Errorf("no such row: %q; there are %s", name, strings.Join(rowNames(), ", "))
		}
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), name)
		if err := allRows[i].measure(b); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if *benchFile == "-" {
		return b.lines(os.Stdout)
	}
	f, err := os.Create(*benchFile)
	if err != nil {
		return err
	}
	return errors.Join(b.lines(f), f.Close())
}

// build builds the missing programs of the participating kubelets.
func (b *bench) build(dir string) error {
	source, err := sourceDir()
	if err != nil {
		return err
	}
	for i, k := range []struct {
		name string
		args []string
	}{{kubelet136, nil}, {kubelet137, []string{"-modfile=v137.mod", "-tags=v137"}}} {
		b.kubelets[i] = filepath.Join(dir, k.name)
		if _, err := os.Stat(b.kubelets[i]); err == nil || !slices.Contains(b.agents, k.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s building %s\n", time.Now().Format(time.TimeOnly), k.name)
		target, err := filepath.Abs(b.kubelets[i])
		if err != nil {
			return err
		}
		cmd := exec.Command("go", append(append([]string{"build", "-o", target}, k.args...), ".")...)
		cmd.Env = append(os.Environ(), "GOWORK=off") // a -modfile has no place in a workspace
		cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(source, "kubelet"), os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building %s: %w", k.name, err)
		}
	}
	return nil
}

// sourceDir returns the folder of this program.
func sourceDir() (string, error) {
	cmd := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/evented-pleg/evented-pleg/test/peer")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run this within the repository: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package upstream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// standIns are the programs that [Unit] plays, by their names.
var standIns = []string{"systemd-run", "systemctl", "journalctl", "sudo"}

// Unit plays the program of the given name, as far as the suite calls it. Ok is false for any
// other. A unit is a folder with its command and log, and its process.
func Unit(name string, args []string, out io.Writer) (err error, ok bool) {
	switch name {
	case "systemd-run":
		return systemdRun(args, out), true
	case "systemctl":
		return systemctl(args, out), true
	case "journalctl": // logs are files
		return nil, true
	case "sudo":
		file, err := exec.LookPath(args[0])
		if err != nil {
			return err, true
		}
		return syscall.Exec(file, args, os.Environ()), true
	}
	return nil, false
}

func systemdRun(args []string, out io.Writer) error {
	name, log := "unit.service", "/dev/null"
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch arg := args[0]; {
		case arg == "--version":
			_, err := fmt.Fprintln(out, "systemd 252 (stand-in)")
			return err
		case arg == "-p" && len(args) > 1:
			args = args[1:]
			if file, ok := strings.CutPrefix(args[0], "StandardError=append:"); ok {
				log = file
			}
		case strings.HasPrefix(arg, "--unit="):
			name = strings.TrimPrefix(arg, "--unit=")
		}
		args = args[1:]
	}
	_, err := newUnit(name, log, args)
	return err
}

// unit is the folder of a unit.
type unit string

// newUnit makes a unit and starts it.
func newUnit(name, log string, command []string) (unit, error) {
	u := unit(filepath.Join(unitsDir, name))
	text := strings.Join(append(command, log), "\x00")
	return u, errors.Join(os.MkdirAll(string(u), 0o755), os.WriteFile(filepath.Join(string(u), "command"), []byte(text), 0o644), u.start())
}

// pid is the unit's process, 0 if there is none.
func (u unit) pid() int {
	text, _ := os.ReadFile(filepath.Join(string(u), "pid"))
	pid, _ := strconv.Atoi(string(text))
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, ok := strings.Cut(string(stat), ") ") // no unit has a parenthesis in its name
	if err != nil || !ok || strings.ContainsAny(state[:1], "ZX") {
		return 0
	}
	return pid
}

func (u unit) start() error {
	text, err := os.ReadFile(filepath.Join(string(u), "command"))
	if err != nil || u.pid() != 0 {
		return err
	}
	args := strings.Split(string(text), "\x00")
	log, err := os.OpenFile(args[len(args)-1], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:len(args)-1]...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // for a caller that lives on
	return os.WriteFile(filepath.Join(string(u), "pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// stop ends the unit's process, by force after 15 s.
func (u unit) stop() {
	pid := u.pid()
	if pid == 0 {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGTERM)
	for end := time.Now().Add(15 * time.Second); u.pid() == pid; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func systemctl(args []string, out io.Writer) error {
	signal := syscall.SIGTERM
	var units []unit
	for _, arg := range args[1:] {
		if arg == "--signal=SIGKILL" || arg == "--signal=KILL" {
			signal = syscall.SIGKILL
		}
		if !strings.HasPrefix(arg, "-") {
			name := strings.TrimSuffix(arg, ".service") + ".service"
			units = append(units, unit(filepath.Join(unitsDir, name)))
		}
	}
	if args[0] == "list-units" {
		units, _ := filepath.Glob(filepath.Join(unitsDir, "*.service"))
		for _, u := range units {
			state := "running"
			if unit(u).pid() == 0 {
				state = "exited"
			}
			if state == "running" || !strings.Contains(strings.Join(args, " "), "running") {
				fmt.Fprintf(out, "  %s loaded active %s stand-in\n", filepath.Base(u), state)
			}
		}
		return nil
	}
	for _, u := range units {
		switch args[0] {
		case "start":
			return u.start()
		case "restart":
			u.stop()
			return u.start()
		case "stop":
			u.stop()
		case "kill":
			if pid := u.pid(); pid != 0 {
				return syscall.Kill(pid, signal)
			}
		case "is-active":
			if u.pid() == 0 {
				return fmt.Errorf("inactive")
			}
			fmt.Fprintln(out, "active")
		case "reset-failed", "mask":
		default:
			return fmt.Errorf("systemctl %q is not played", args)
		}
	}
	return nil
}

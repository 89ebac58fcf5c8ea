// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
)

// Machine is the Host of this program's machine.
type Machine struct {
	// Socket is the path of the runtime's socket.
	Socket string
	// Kubelet is the address of the kubelet's /healthz, empty to skip the kubelet.
	Kubelet string

	// kernel answers about paths; the zero value is the machine's own. Tests have others.
	kernel kernel

	begun   time.Time
	before  map[int]float64 // CPU seconds by PID, of the runtime and the shims
	owner   int             // the process listening on the socket, by End; 0 if not known
	living  map[string]bool // IDs in the cgroups of processes, at the begin; nil if none could be read
	clients int             // connections to the socket, before our own
	listens bool            // the socket is in the table of this network namespace
	locked  int             // the processes among dead
	dead    []string        // the paths about which the kernel gave no answer
}

// kernel are the calls that may hang on a dead mount, or for a process whose memory is locked, and
// those about the surroundings of this process. Nil functions are the kernel's own.
type kernel struct {
	resolve   func(path string) (string, error)
	disk      func(path string) (Disk, unix.Fsid, error)
	listener  func(socket string) int
	arguments func(p procfs.Proc) ([]string, error)
	contained func() bool
}

// mostDead bounds the looks at processes without an answer: each takes a second.
const mostDead = 3

// died notes a path about which the kernel gave no answer.
func (m *Machine) died(path string) {
	if !slices.Contains(m.dead, path) {
		m.dead = append(m.dead, path)
	}
}

// argumentsOf are the arguments of a process, none if the kernel does not tell: it waits for a
// process that holds its own memory, as one may that hangs.
func (m *Machine) argumentsOf(p procfs.Proc) []string {
	read := m.kernel.arguments
	if read == nil {
		read = procfs.Proc.CmdLine
	}
	if m.locked >= mostDead {
		return nil
	}
	name := fmt.Sprintf("/proc/%d/cmdline", p.PID)
	list, answered := deadmount.Ask(name, func() []string {
		list, _ := read(p)
		return list
	})
	if !answered {
		m.locked++
		m.died(name)
	}
	return list
}

var _ Host = (*Machine)(nil)

// Begin implements [Host].
func (m *Machine) Begin(context.Context) {
	m.begun = time.Now()
	m.before = make(map[int]float64)
	m.dead = nil
	m.locked = 0
	m.clients, m.listens = m.connections()
	owner := m.listener()
	all, _ := procfs.AllProcs() // none are seen then
	m.living = livingIn(all)
	for _, p := range all {
		name, _ := p.Comm()
		if p.PID == owner || isShim(name) {
			m.before[p.PID] = cpuOf(p)
		}
	}
}

// End implements [Host].
func (m *Machine) End(ctx context.Context, what Whereabouts) HostFacts {
	f := HostFacts{
		Node:   bench.Node(),
		Shims:  map[string]Process{},
		Strays: map[string]Process{},
		Stuck:  map[string][]Process{},
		Unseen: map[string]string{},
	}
	span := time.Since(m.begun).Seconds()
	owner := m.listener()
	m.owner = owner
	known := make(map[string]bool)
	for _, id := range what.IDs {
		known[id] = true
	}
	all, _ := procfs.AllProcs()
	f.Alive = m.alive(all, known)
	for _, p := range all {
		process := describe(p)
		if before, ok := m.before[p.PID]; ok {
			process.CPU = max(0, cpuOf(p)-before) / span
		}
		switch {
		case p.PID == owner:
			f.Seen = true
			f.Owner = process
			arguments := m.argumentsOf(p)
			if process.Name == ourName && slices.Contains(arguments, ourProxy) {
				f.Owner.Name += " " + ourProxy // and no fake runtime
			}
		case isShim(process.Name):
			m.enterShim(&f, p, process, known)
		case process.State == "D":
			if id := containerOf(p.PID, known); id != "" {
				f.Stuck[id] = append(f.Stuck[id], process)
			}
		case p.PID != os.Getpid() && p.PID != os.Getppid():
			arguments := m.argumentsOf(p)
			if slices.ContainsFunc(arguments, func(a string) bool { return strings.Contains(a, m.Socket) }) {
				f.Callers = append(f.Callers, process)
			}
		}
	}
	clients, _ := m.connections()
	f.Clients = min(m.clients, clients) // a stalled server may still hold ours
	if !m.listens {
		f.Unseen["clients"] = "nobody listens at this path in this network namespace"
	}
	m.disks(&f, what.Paths)
	var err error
	f.Unsynchronised, err = unsynchronised()
	if err != nil {
		f.Unseen["clock"] = "adjtimex: " + err.Error()
	}
	var unread string
	f.Pressure, unread = pressures("/proc/pressure")
	if unread != "" {
		f.Unseen["pressure"] = unread
	}
	var asked bool
	f.KubeletHealth, asked = m.kubelet(ctx)
	if !asked {
		f.Unseen["kubelet"] = "no kubelet is reached at " + cmp.Or(m.Kubelet, "any address")
	}
	f.Dead = m.dead
	return f
}

// enterShim enters a shim: by the known IDs of what it keeps, or as a stray.
func (m *Machine) enterShim(f *HostFacts, p procfs.Proc, shim Process, known map[string]bool) {
	f.Seen = true
	f.ShimsRun++
	f.ShimCPU += shim.CPU
	arguments := m.argumentsOf(p)
	kept := idsIn(strings.Join(arguments, " "), known)
	for _, id := range kept {
		f.Shims[id] = shim
	}
	_, before := m.before[p.PID]
	if before && len(kept) == 0 && m.owns(arguments) {
		f.Strays[keptBy(arguments)] = shim
	}
}

// disks adds the file systems written by the runtime and the kubelet. In a container their paths
// are not the node's: there, the socket's folder is, and below the overlay at the root lie the
// runtime's images.
func (m *Machine) disks(f *HostFacts, paths []string) {
	ask := m.kernel.contained
	if ask == nil {
		ask = contained
	}
	socket := filepath.Dir(m.Socket)
	if f.Seen || !ask() { // the first also if the node itself is a container
		usual := []string{
			"/run",
			"/var/lib/containerd",
			"/var/lib/containers",
			"/var/lib/kubelet",
			"/var/log/pods",
			socket,
		}
		f.Disks = m.disksOf(append(paths, usual...)...)
		return
	}
	f.Unseen["disks"] = "in this container, only those of the socket and of the runtime's images are seen"
	f.Disks = m.disksOf(socket, "/")
	for i := range f.Disks {
		if f.Disks[i].Path == "/" {
			f.Disks[i].Means = "the runtime's images, by the root of this container,"
		}
	}
}

// contained reports whether this process is in a container: its root is an overlay, as of most, or
// its namespace of processes is not the machine's, as also with snapshots of btrfs or ZFS.
func contained() bool {
	var root unix.Statfs_t
	if unix.Statfs("/", &root) == nil && root.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return true
	}
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO of the kernel
	own, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && own != first
}

// isShim reports whether a process keeps sandboxes or containers, by its name, which the kernel
// cuts at 15 bytes.
func isShim(name string) bool {
	return strings.HasPrefix(name, "containerd-shim") || name == "conmon" || name == "conmonrs"
}

// owns reports whether a shim with these arguments is one of the examined runtime: containerd's for
// the CRI at this socket, or CRI-O's. Other shims belong to Docker, Podman or another containerd.
func (m *Machine) owns(arguments []string) bool {
	if keptBy(arguments) == "" {
		return false
	}
	if strings.Contains(filepath.Base(m.Socket), "crio") {
		return slices.ContainsFunc(arguments, func(a string) bool { return strings.Contains(a, "/crio/") })
	}
	const space = "k8s.io" // where containerd keeps what the CRI makes
	address := after(arguments, "-address")
	return after(arguments, "-namespace") == space && address != "" && m.resolve(address) == m.resolve(m.Socket)
}

// keptBy is the ID of what a shim keeps by its arguments, empty if they do not tell.
func keptBy(arguments []string) string {
	for _, name := range []string{"-id", "-c"} {
		if id := after(arguments, name); idForm.MatchString(id) {
			return id
		}
	}
	return ""
}

// after is the argument after the one with a name, empty without.
func after(arguments []string, name string) string {
	n := slices.Index(arguments, name)
	if n < 0 || n+1 >= len(arguments) {
		return ""
	}
	return arguments[n+1]
}

var idForm = regexp.MustCompile(`[0-9a-f]{64}`)

// idsIn are the known IDs in a text.
func idsIn(text string, known map[string]bool) (list []string) {
	for _, id := range idForm.FindAllString(text, -1) {
		if known[id] {
			list = append(list, id)
		}
	}
	return list
}

// containerOf is the container of a process by its cgroups, empty for none.
func containerOf(pid int, known map[string]bool) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	ids := idsIn(string(text), known)
	if len(ids) == 0 {
		return ""
	}
	return ids[len(ids)-1]
}

// livingIn returns the IDs in the cgroups of processes; nil if no cgroup could be read. The monitor
// of a container may be in a cgroup with the container's ID, and so may a dead process, until it is
// collected.
func livingIn(all procfs.Procs) map[string]bool {
	var living map[string]bool
	for _, p := range all {
		groups, err := p.Cgroups()
		if err != nil {
			continue
		}
		if living == nil {
			living = make(map[string]bool)
		}
		var ids []string
		for _, g := range groups {
			ids = append(ids, idForm.FindAllString(g.Path, -1)...)
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return living[id] })
		if len(ids) == 0 {
			continue
		}
		process := describe(p)
		if isShim(process.Name) || process.dead() {
			continue
		}
		for _, id := range ids {
			living[id] = true
		}
	}
	return living
}

// alive returns the known IDs in the cgroups of processes, at the begin or now; nil if no cgroup
// could be read at both times.
func (m *Machine) alive(all procfs.Procs, known map[string]bool) map[string]bool {
	living := livingIn(all)
	if m.living == nil || living == nil {
		return nil
	}
	alive := make(map[string]bool)
	for id := range known {
		if m.living[id] || living[id] {
			alive[id] = true
		}
	}
	return alive
}

// Runs implements [Host]. The PID is one of the runtime's namespace, which may be below ours, as on
// a node that is a container.
func (m *Machine) Runs(pid int) bool {
	proc, err := procfs.NewDefaultFS()
	return err != nil || runsIn(proc, m.owner, pid)
}

// runsIn reports whether a process runs whose PID is of the namespace of another, the owner. If the
// owner is not known, it is of ours. A process that is dead and not yet collected does not run.
func runsIn(proc procfs.FS, owner, pid int) bool {
	depth := len(pidsOf(proc, owner))
	if depth < 2 {
		p, err := proc.Proc(pid)
		if err != nil {
			return !errors.Is(err, fs.ErrNotExist)
		}
		process := describe(p)
		return !process.dead()
	}
	all, err := proc.AllProcs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(all, func(p procfs.Proc) bool {
		pids := pidsOf(proc, p.PID)
		if len(pids) < depth || pids[depth-1] != uint64(pid) {
			return false
		}
		process := describe(p)
		return !process.dead()
	})
}

// pidsOf returns the PIDs of a process: of this namespace, and of those below it, each the parent
// of the next. None if they are not known.
func pidsOf(proc procfs.FS, pid int) []uint64 {
	p, err := proc.Proc(pid)
	if err != nil {
		return nil
	}
	status, err := p.NewStatus()
	if err != nil {
		return nil
	}
	return status.NSpids
}

func describe(p procfs.Proc) Process {
	process := Process{PID: p.PID}
	process.Name, _ = p.Comm()
	stat, err := p.Stat()
	if err == nil {
		process.State = stat.State
	}
	process.Wait, _ = p.Wchan()
	return process
}

func cpuOf(p procfs.Proc) float64 {
	stat, err := p.Stat()
	if err != nil {
		return 0
	}
	return stat.CPUTime()
}

// listener is the process listening on the socket, 0 if not known.
func (m *Machine) listener() int {
	ask := m.kernel.listener
	if ask == nil {
		ask = listenerOf
	}
	pid, answered := deadmount.AskFor(2*deadmount.LookIn, m.Socket, func() int { return ask(m.Socket) })
	if !answered {
		m.died(m.Socket)
	}
	return pid
}

// listenerOf is the process listening on a socket, 0 if not known.
func listenerOf(socket string) int {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && cred.Pid > 1 { // with socket activation the listener is systemd
			pid = int(cred.Pid)
		}
	})
	return pid
}

// connections counts the open connections at the socket, by the kernel's table of this network
// namespace, and reports whether the socket is in the table. The name there is the server's.
func (m *Machine) connections() (n int, listens bool) {
	file, err := os.Open("/proc/net/unix")
	if err != nil {
		return 0, false
	}
	defer file.Close()
	resolved := m.resolve(m.Socket)
	names := map[string]string{m.Socket: resolved} // as resolved before
	const connected, state, path = "03", 5, 7
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) <= path || filepath.Base(fields[path]) != filepath.Base(resolved) {
			continue
		}
		name, known := names[fields[path]]
		if !known {
			name = m.resolve(fields[path])
			names[fields[path]] = name
		}
		switch {
		case name != resolved:
		case fields[state] == connected:
			n++
		default:
			listens = true
		}
	}
	return n, listens
}

// resolve is a path without links, the path itself if that is not known.
func (m *Machine) resolve(path string) string {
	ask := m.kernel.resolve
	if ask == nil {
		ask = filepath.EvalSymlinks
	}
	resolved, answered := deadmount.Ask(path, func() string {
		resolved, err := ask(path)
		if err != nil {
			return path
		}
		return resolved
	})
	if !answered {
		m.died(path)
		return path
	}
	return resolved
}

// disksOf are the file systems of paths, each once, without those that do not exist. All are looked
// at together: several may give no answer.
func (m *Machine) disksOf(paths ...string) (list []Disk) {
	type place struct {
		disk     Disk
		id       unix.Fsid
		err      error
		answered bool
	}
	ask := m.kernel.disk
	if ask == nil {
		ask = diskOf
	}
	places := make([]place, len(paths))
	var all sync.WaitGroup
	for i, path := range paths {
		all.Go(func() {
			at := &places[i]
			if path == "" {
				at.answered = true
				at.err = fs.ErrNotExist
				return
			}
			found, answered := deadmount.Ask(path, func() (p place) {
				p.disk, p.id, p.err = ask(path)
				return p
			})
			*at = found
			at.answered = answered
		})
	}
	all.Wait()
	seen := make(map[unix.Fsid]bool)
	for i, at := range places {
		switch {
		case !at.answered:
			m.died(paths[i])
		case at.err == nil && !seen[at.id]:
			seen[at.id] = true
			list = append(list, at.disk)
		}
	}
	return list
}

// diskOf is the file system of a path, with its ID.
func diskOf(path string) (Disk, unix.Fsid, error) {
	var s unix.Statfs_t
	err := unix.Statfs(path, &s)
	if err != nil {
		return Disk{}, unix.Fsid{}, err
	}
	size := uint64(s.Bsize)
	return Disk{
		Path:       path,
		Mount:      mountOf(path),
		FreeBytes:  s.Bavail * size,
		Bytes:      s.Blocks * size,
		FreeInodes: s.Ffree,
		Inodes:     s.Files,
	}, s.Fsid, nil
}

// mountOf is the mount point of a path's file system.
func mountOf(path string) string {
	var own, above unix.Stat_t
	for path = filepath.Clean(path); path != "/" && unix.Stat(path, &own) == nil; path = filepath.Dir(path) {
		if unix.Stat(filepath.Dir(path), &above) != nil || above.Dev != own.Dev {
			return path
		}
	}
	return path
}

// unsynchronised reports whether the kernel knows of no time source.
func unsynchronised() (bool, error) {
	var t unix.Timex
	_, err := unix.Adjtimex(&t) // with modes 0 the call only reads
	return err == nil && t.Status&unix.STA_UNSYNC != 0, err
}

// pressures are the shares of the last ten seconds in which all work waited, by resource. The
// folder is the kernel's /proc/pressure, which is the machine's in a container, too. Unread is why
// a resource lacks: the kernel has no such file, has it off, or denies it.
func pressures(folder string) (shares map[string]float64, unread string) {
	shares = make(map[string]float64)
	for _, resource := range []string{"io", "memory"} {
		path := filepath.Join(folder, resource)
		text, err := os.ReadFile(path)
		if err != nil {
			unread = err.Error()
			continue
		}
		for line := range bytes.Lines(text) {
			var share float64
			if n, _ := fmt.Sscanf(string(line), "full avg10=%f", &share); n == 1 {
				shares[resource] = share / 100
			}
		}
		if _, found := shares[resource]; !found {
			unread = path + `: it has no line "full"`
		}
	}
	return shares, unread
}

// kubelet asks the kubelet on this machine for its health, which is empty if the kubelet is well.
// Asked is false without a kubelet.
func (m *Machine) kubelet(ctx context.Context) (sick string, asked bool) {
	if m.Kubelet == "" {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Kubelet, nil)
	if err != nil {
		return err.Error(), true
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return "no answer in 2 s from " + m.Kubelet, true
		}
		return "", false
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
	if answer.StatusCode == http.StatusOK {
		return "", true
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %s: %s", m.Kubelet, answer.Status, text)), true
}

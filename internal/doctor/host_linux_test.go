// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// standIn starts a process with the name of a shim, which names a sandbox in its arguments as
// containerd's does.
func standIn(t *testing.T, sandbox string) *os.Process {
	t.Helper()
	return keeper(t, "containerd-shim-runc-v2", "-id", sandbox)
}

// keeper starts a process with the name and the arguments of a shim.
func keeper(t *testing.T, name string, args ...string) *os.Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	// A shell that waits for commands, in a process with these arguments.
	shell := testkit.Must(exec.LookPath("sh"))(t)
	testkit.Check(t, os.WriteFile(path, testkit.Must(os.ReadFile(shell))(t), 0o755))
	cmd := exec.Command(path, append([]string{"-s", "--"}, args...)...)
	input := testkit.Must(cmd.StdinPipe())(t)
	testkit.Check(t, cmd.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process
}

// TestStrays: shims of the examined runtime that ran all the time and name nothing listed are told.
// Those of other runtimes, other namespaces and listed sandboxes are not.
func TestStrays(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	socket, crio := filepath.Join(folder, "containerd.sock"), filepath.Join(folder, "crio.sock")
	id := func(n int) string { return fmt.Sprintf("%064x", 0xabc000+n) }
	const runc = "containerd-shim-runc-v2"
	stray := keeper(t, runc, "-namespace", "k8s.io", "-id", id(1), "-address", socket)
	keeper(t, runc, "-namespace", "k8s.io", "-id", id(2), "-address", socket)
	keeper(t, runc, "-namespace", "moby", "-id", id(3), "-address", socket)
	keeper(t, runc, "-namespace", "k8s.io", "-id", id(4), "-address", socket+".other")
	monitor := keeper(t, "conmon", "-b", "/x/"+id(5)+"/userdata", "-c", id(5), "--exit-dir", "/var/run/crio/exits")
	keeper(t, "conmon", "-c", id(6), "--exit-dir", "/run/libpod/exits")
	for _, test := range []struct {
		socket string
		listed []string
		found  map[string]int
	}{
		{socket, []string{id(2)}, map[string]int{id(1): stray.Pid}},
		{socket, []string{id(1), id(2)}, map[string]int{}},
		{crio, nil, map[string]int{id(5): monitor.Pid}},
	} {
		m := &Machine{Socket: test.socket}
		m.Begin(t.Context())
		late := keeper(t, runc, "-namespace", "k8s.io", "-id", id(7), "-address", test.socket)
		found := make(map[string]int)
		for id, p := range m.End(t.Context(), Whereabouts{IDs: test.listed}).Strays {
			found[id] = p.PID
		}
		if !maps.Equal(found, test.found) {
			t.Errorf("%s with %v listed: found %v, want %v; process %d came later",
				test.socket, test.listed, found, test.found, late.Pid)
		}
		testkit.Check(t, late.Kill())
	}
}

// procTree is a folder like /proc, of the test's making.
type procTree string

// enter adds a process. Pids are its PIDs, of this namespace and those below.
func (p procTree) enter(t *testing.T, name, state, cgroup string, pids ...int) {
	t.Helper()
	dir := filepath.Join(string(p), fmt.Sprint(pids[0]))
	testkit.Check(t, os.Mkdir(dir, 0o755))
	for file, text := range map[string]string{
		"comm":   name + "\n",
		"stat":   fmt.Sprintf("%d (%s) %s 1", pids[0], name, state) + strings.Repeat(" 0", 48) + "\n",
		"wchan":  "0",
		"cgroup": cgroup,
		"status": "Name:\t" + name + "\nNSpid:\t" + strings.ReplaceAll(strings.Trim(fmt.Sprint(pids), "[]"), " ", "\t") + "\n",
	} {
		testkit.Check(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
}

// TestLiving: a process with a container's ID in its cgroups is one of the container, of either
// version of cgroups and seen from any namespace. A monitor is not, nor is one that is dead.
func TestLiving(t *testing.T) {
	t.Parallel()
	id := func(n int) string { return fmt.Sprintf("%064x", 0xabc000+n) }
	tree := procTree(t.TempDir())
	tree.enter(t, "systemd", "S", "0::/init.scope\n", 1)
	tree.enter(t, "app", "S", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-"+id(2)+".scope\n", 2)
	tree.enter(t, "app", "R", "9:memory:/kubepods/pod1/"+id(3)+"\n8:cpu:/kubepods/pod1/"+id(3)+"\n", 3)
	tree.enter(t, "app", "D", "0::/../../pod1/crio-"+id(4)+".scope/of its own\n", 4)
	tree.enter(t, "conmon", "S", "0::/kubepods.slice/crio-conmon-"+id(5)+".scope\n", 5)
	tree.enter(t, "containerd-shim", "S", "0::/kubepods.slice/"+id(6)+"\n", 6)
	tree.enter(t, "app", "Z", "0::/kubepods.slice/"+id(7)+"\n", 7)
	proc := testkit.Must(procfs.NewFS(string(tree)))(t)
	all := testkit.Must(proc.AllProcs())(t)
	want := map[string]bool{id(2): true, id(3): true, id(4): true}
	if living := livingIn(all); !maps.Equal(living, want) {
		t.Errorf("living %v, want %v", living, want)
	}
	known := map[string]bool{id(1): true, id(3): true, id(8): true}
	m := &Machine{living: map[string]bool{id(8): true, id(9): true}}
	want = map[string]bool{id(3): true, id(8): true}
	if alive := m.alive(all, known); !maps.Equal(alive, want) {
		t.Errorf("alive %v, want %v", alive, want)
	}
	m.living = nil
	if alive := m.alive(all, known); alive != nil {
		t.Errorf("%v are alive, although no cgroup could be read at the begin", alive)
	}
}

// TestRuns: a process runs until it has ended, and does not once it is dead, collected or not.
func TestRuns(t *testing.T) {
	t.Parallel()
	var m Machine
	cmd := exec.Command("cat")
	input := testkit.Must(cmd.StdinPipe())(t)
	testkit.Check(t, cmd.Start())
	if !m.Runs(cmd.Process.Pid) {
		t.Error("a process that reads does not run")
	}
	testkit.Check(t, input.Close())
	for limit := time.Now().Add(time.Minute); m.Runs(cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("a process that has ended runs")
		}
	}
	testkit.Check(t, cmd.Wait())
	if m.Runs(cmd.Process.Pid) {
		t.Error("a process that was collected runs")
	}
}

// TestRunsBelow: where the runtime has a namespace of processes below ours, the PIDs are those of
// that namespace, also of processes in one of their own below.
func TestRunsBelow(t *testing.T) {
	t.Parallel()
	tree := procTree(t.TempDir())
	tree.enter(t, "containerd", "S", "", 100)
	tree.enter(t, "containerd", "S", "", 200, 7)
	tree.enter(t, "app", "S", "", 201, 8, 1)
	tree.enter(t, "app", "Z", "", 202, 9, 1)
	tree.enter(t, "app", "S", "", 10)
	proc := testkit.Must(procfs.NewFS(string(tree)))(t)
	for _, test := range []struct {
		owner, pid int
		runs       bool
	}{
		{100, 10, true},
		{100, 202, false},
		{100, 8, false},
		{0, 10, true},
		{0, 8, false},
		{200, 7, true},
		{200, 8, true},
		{200, 9, false},
		{200, 10, false},
		{200, 1, false},
	} {
		if runs := runsIn(proc, test.owner, test.pid); runs != test.runs {
			t.Errorf("process %d of the namespace of %d runs: %v, want %v", test.pid, test.owner, runs, test.runs)
		}
	}
}

// TestHungShim examines a runtime one of whose containers does not answer because its shim is
// stopped: doctor names the container, the process and the command that continues it.
func TestHungShim(t *testing.T) {
	t.Parallel()
	// A seed of its own: other tests of this machine must not meet the stand-in for one of their shims.
	rt := testkit.Must(fakeruntime.New(fakeruntime.Config{Seed: 1803}))(t)
	socket := onfake.Socket(t, rt)
	testkit.Check(t, rt.SetFaults(testkit.Must(fakeruntime.ParseFaults("hang-item=0.2"))(t)))
	testkit.Must(rt.Populate(ten))(t)
	within := 3 * time.Second
	look := func(enough func(Report) bool) Report {
		for ; ; within *= 2 { // on a crowded machine not all pods were read
			r := Examine(t.Context(), Options{
				Endpoint: "unix://" + socket,
				Dial: func(ctx context.Context) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "unix", socket)
				},
				Within: within,
				Host:   &Machine{Socket: socket},
			})
			if enough(r) || within > time.Minute {
				return r
			}
		}
	}
	var hung, sandbox string // the seed decides
	before := look(func(r Report) bool {
		for _, pod := range rt.Truth().Pods {
			id := pod.Sandboxes[0].Containers[0].ID
			if strings.Contains(fmt.Sprint(r.Findings), id) {
				hung = id
				sandbox = pod.Sandboxes[0].ID
			}
		}
		return hung != ""
	})
	if hung == "" {
		t.Fatalf("no container hangs: %+v", before.Findings)
	}
	shim := standIn(t, sandbox)
	testkit.Check(t, shim.Signal(syscall.SIGSTOP))
	r := look(func(r Report) bool { return strings.Contains(fmt.Sprint(r.Findings), hung) })
	said := fmt.Sprint(r.Findings)
	for _, want := range []string{
		"item-hangs", "is not answered", fmt.Sprintf("its shim, process %d (containerd-shim), is stopped", shim.Pid), fmt.Sprintf("kill -CONT %d", shim.Pid),
	} {
		if r.Worth != Sick || !strings.Contains(said, want) {
			t.Errorf("%s: %q is not in %s", r.Worth, want, said)
		}
	}
}

// TestDisks checks what is read of file systems: each once, with room that is not more than all of
// it, and none of paths that do not exist.
func TestDisks(t *testing.T) {
	dir := t.TempDir()
	list := new(Machine).disksOf("", filepath.Join(dir, "nothing"), dir, filepath.Dir(dir))
	if len(list) == 0 || list[0].Path != dir {
		t.Fatalf("disks %+v", list)
	}
	if mount := mountOf("/proc/self"); mount != "/proc" {
		t.Errorf("/proc is mounted on %s", mount)
	}
	for _, d := range list {
		if other := mountOf(d.Mount); other != d.Mount || !strings.HasPrefix(d.Path, d.Mount) {
			t.Errorf("disk %+v is mounted on %s", d, other)
		}
		if d.Bytes == 0 || d.FreeBytes > d.Bytes || d.FreeInodes > d.Inodes {
			t.Errorf("disk %+v", d)
		}
	}
}

// TestClients checks that the connections of others are told, and not those of the examination,
// which a server that hangs may still hold at the end.
func TestClients(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	lis := testkit.Must(net.Listen("unix", socket))(t)
	defer lis.Close()
	connect := func() {
		conn := testkit.Must(net.Dial("unix", socket))(t)
		kept := testkit.Must(lis.Accept())(t)
		t.Cleanup(func() {
			_ = conn.Close()
			_ = kept.Close()
		})
	}
	for others := range 3 {
		m := &Machine{Socket: socket}
		m.Begin(t.Context())
		testkit.Must(lis.Accept())(t).Close() // Begin looks at the listener
		connect()
		f := m.End(t.Context(), Whereabouts{})
		testkit.Must(lis.Accept())(t).Close()
		if f.Clients != others {
			t.Errorf("%d connections of others, want %d", f.Clients, others)
		}
	}
}

// TestNotLookedAt: a kubelet that is not there, and a socket of another network namespace, are not
// taken for well.
func TestNotLookedAt(t *testing.T) {
	look := func(socket, healthz string) HostFacts {
		m := &Machine{Socket: socket, Kubelet: healthz}
		m.Begin(t.Context())
		return m.End(t.Context(), Whereabouts{})
	}
	health := http.StatusOK
	server := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(health) }),
	)
	here := onfake.Socket(t, testkit.Must(fakeruntime.New(fakeruntime.Config{Seed: 3}))(t))
	f := look(here, server.URL)
	if f.Unseen["kubelet"] != "" || f.Unseen["clients"] != "" || f.KubeletHealth != "" {
		t.Errorf("not looked at: %v; the kubelet's health is %q", f.Unseen, f.KubeletHealth)
	}
	health = http.StatusInternalServerError
	f = look(here, server.URL)
	if f.Unseen["kubelet"] != "" || !strings.Contains(f.KubeletHealth, "500") {
		t.Errorf("not looked at: %v; the kubelet's health is %q", f.Unseen, f.KubeletHealth)
	}
	server.Close()
	f = look(filepath.Join(t.TempDir(), "elsewhere.sock"), server.URL)
	if f.Unseen["kubelet"] == "" || !strings.HasPrefix(f.Unseen["clients"], "nobody listens") ||
		f.KubeletHealth != "" {
		t.Errorf("not looked at: %v; the kubelet's health is %q", f.Unseen, f.KubeletHealth)
	}
	if f.Node != bench.Node() {
		t.Errorf("the node is %q, want %q", f.Node, bench.Node())
	}
	r := Conclude(Facts{Listed: true, Looked: true, Host: f})
	said := fmt.Sprint(r.Document().Notes)
	if unseenOf(r, "kubelet") == "" ||
		!strings.Contains(said, "Not looked at: the kubelet's health: no kubelet is reached at "+server.URL) {
		t.Errorf("the report says %s", said)
	}
}

// TestPressures: what cannot be read of the pressure is said with the reason, and the rest is told.
func TestPressures(t *testing.T) {
	const full = "some avg10=90.00 avg60=1.00 avg300=0.00 total=9\nfull avg10=12.50 avg60=0.00 avg300=0.00 total=3\n"
	folder := t.TempDir()
	shares, unseen := pressures(folder)
	if len(shares) != 0 || !strings.Contains(unseen, "no such file") {
		t.Errorf("without files: %v, %q", shares, unseen)
	}
	testkit.Check(t, os.WriteFile(filepath.Join(folder, "io"), []byte(full), 0o600))
	testkit.Check(t, os.Mkdir(filepath.Join(folder, "memory"), 0o700)) // opens, and cannot be read
	shares, unseen = pressures(folder)
	if !maps.Equal(shares, map[string]float64{"io": 0.125}) || !strings.Contains(unseen, "memory: is a directory") {
		t.Errorf("without memory: %v, %q", shares, unseen)
	}
	testkit.Check(t, os.Remove(filepath.Join(folder, "memory")))
	testkit.Check(t, os.WriteFile(filepath.Join(folder, "memory"), []byte("some avg10=90.00\n"), 0o600))
	shares, unseen = pressures(folder)
	if len(shares) != 1 || !strings.Contains(unseen, "memory: it has no line \"full\"") {
		t.Errorf("of another form: %v, %q", shares, unseen)
	}
	testkit.Check(t, os.WriteFile(filepath.Join(folder, "memory"), []byte(full), 0o600))
	shares, unseen = pressures(folder)
	if len(shares) != 2 || unseen != "" {
		t.Errorf("%v, %q", shares, unseen)
	}
}

// TestDisksOfAContainer: without a process of the runtime in sight, the paths of a container are
// not taken for the node's.
func TestDisksOfAContainer(t *testing.T) {
	t.Parallel()
	node := t.TempDir()
	for _, contained := range []bool{true, false} {
		m := &Machine{
			Socket: filepath.Join(t.TempDir(), "cri.sock"),
			kernel: kernel{contained: func() bool { return contained }},
		}
		f := HostFacts{Unseen: make(map[string]string)}
		m.disks(&f, []string{node})
		looked := slices.ContainsFunc(f.Disks, func(d Disk) bool { return d.Path == node })
		if looked == contained || (f.Unseen["disks"] != "") != contained {
			t.Errorf("contained: %v, disks %+v, not looked at: %v", contained, f.Disks, f.Unseen)
		}
	}
}

// TestContained: a namespace of processes of its own is a container, also without an overlay.
func TestContained(t *testing.T) {
	const within = "DOCTOR_TEST_CONTAINED"
	if os.Getenv(within) != "" {
		if !contained() {
			t.Error("this process is taken for one of the machine")
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestContained$")
	cmd.Env = append(os.Environ(), within+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUSER}
	said, err := cmd.CombinedOutput()
	if err != nil && cmd.Process == nil {
		t.Skip("this machine lets nobody make namespaces: ", err)
	}
	if err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

// TestSocketBehindLinks: the connections of a socket are found by each of its names. CRI-O listens
// in /var/run, which is a link, and is asked in /run.
func TestSocketBehindLinks(t *testing.T) {
	t.Parallel()
	folder, link := t.TempDir(), filepath.Join(t.TempDir(), "run")
	testkit.Check(t, os.Symlink(folder, link))
	for _, test := range []struct{ bound, asked string }{{folder, link}, {link, folder}} {
		server := testkit.Must(net.Listen("unix", filepath.Join(test.bound, "x.sock")))(t)
		held := testkit.Must(net.Dial("unix", filepath.Join(test.asked, "x.sock")))(t)
		taken := testkit.Must(server.Accept())(t)
		n, listens := (&Machine{Socket: filepath.Join(test.asked, "x.sock")}).connections()
		if n != 1 || !listens {
			t.Errorf("bound in %s, asked in %s: %d connections, listens: %v", test.bound, test.asked, n, listens)
		}
		testkit.Check(t, taken.Close())
		testkit.Check(t, held.Close())
		testkit.Check(t, server.Close())
	}
}

// TestDeadMounts: the kernel gives no answer about a path, as on a dead mount, or about a process.
// The rest of the machine is looked at, the path is named, and no look is left twice.
func TestDeadMounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	never, hung := make(chan struct{}), new(atomic.Int32)
	var ended sync.WaitGroup
	hang := func() {
		ended.Add(1)
		defer ended.Done()
		hung.Add(1)
		<-never
	}
	t.Cleanup(func() {
		close(never)
		ended.Wait()
	})
	for _, test := range []struct {
		name   string
		kernel func(path string) kernel // which hangs for the path
		path   string
	}{
		{"a disk", func(path string) kernel {
			return kernel{disk: func(at string) (Disk, unix.Fsid, error) {
				if at == path {
					hang()
				}
				return diskOf(at)
			}}
		}, filepath.Join(dir, "dead")},
		{"links", func(path string) kernel {
			return kernel{resolve: func(at string) (string, error) {
				if at == path {
					hang()
				}
				return at, nil
			}}
		}, filepath.Join(dir, "links.sock")},
		{"the socket", func(string) kernel {
			return kernel{listener: func(string) int {
				hang()
				return 0
			}}
		}, filepath.Join(dir, "listener.sock")},
		{"a process", func(path string) kernel {
			return kernel{arguments: func(p procfs.Proc) ([]string, error) {
				if fmt.Sprintf("/proc/%d/cmdline", p.PID) == path {
					hang()
				}
				return p.CmdLine()
			}}
		}, fmt.Sprintf("/proc/%d/cmdline", standIn(t, "").Pid)},
	} {
		socket := test.path
		if filepath.Ext(socket) != ".sock" {
			socket = filepath.Join(test.path, "cri.sock")
		}
		hung.Store(0)
		for range 2 { // as in repeated examinations
			m := &Machine{Socket: socket, kernel: test.kernel(test.path)}
			m.Begin(t.Context())
			f := m.End(t.Context(), Whereabouts{})
			if len(f.Dead) == 0 || slices.ContainsFunc(f.Dead, func(p string) bool { return p != test.path }) || len(f.Disks) == 0 {
				t.Errorf("%s: dead %q, want %s; disks %+v", test.name, f.Dead, test.path, f.Disks)
			}
		}
		if n := hung.Load(); n != 1 {
			t.Errorf("%s: %d looks hang, want 1", test.name, n)
		}
	}
}

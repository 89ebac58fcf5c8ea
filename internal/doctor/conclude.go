// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
	"github.com/evented-pleg/evented-pleg/internal/doctor/findings"
)

// Thresholds.
const (
	// slowBy and slowFrom: a slow call takes so many times the usual time, and at least so many
	// seconds.
	slowBy   = 10
	slowFrom = 0.5
	// lagBy: a slow call also takes so many times the wait of this program for the CPU.
	lagBy = 10
	// lagging is the time without a CPU, in seconds, from which on the report has a note.
	lagging = 0.2
	// lateError: if the call of an item fails after so many seconds, the item hangs. containerd itself
	// gives up on a shim after two.
	lateError = 1.0
	// manyExited: a kubelet keeps an exited container for each running container.
	manyExited = 300
	// diskFree and inodesFree are the least free shares.
	diskFree, inodesFree = 0.05, 0.05
	// clockOff is how far stamps may be off, in seconds.
	clockOff = 2.0
	// pressed is the share of the time in which all work waited.
	pressed = 0.25
	// busyShim and busyRuntime are CPU seconds a second on a quiet node.
	busyRuntime = 0.05
	// mostNamed bounds the names in a finding's evidence.
	mostNamed = 5
)

// Conclude turns facts into a report.
func Conclude(f Facts) Report {
	r := Report{
		Schema:     Schema,
		Time:       f.Began,
		Node:       f.Host.Node,
		Endpoint:   f.Endpoint,
		Runtime:    strings.TrimSpace(f.Name + " " + f.Version),
		Worth:      Well,
		Seconds:    f.Seconds,
		Calls:      f.Calls,
		Pods:       -1,
		Containers: -1,
		Running:    -1,
		Events:     f.Stream.Received,
	}
	if f.Listed {
		r.Pods = f.Pods
		r.Containers = f.Containers
		r.Running = f.Running
	}
	var list []Finding
	for _, rule := range []func(Facts) []Finding{
		unreachable, silent, calls, lists, unlisted, hanging, endings, conditions, unreadable, kubelet, mounts, disks, clocks, leftovers, events, pressure, costs, others, limits,
	} {
		list = append(list, rule(f)...)
	}
	r.Findings = sorted(list)
	r.Unseen = f.unseen()
	r.lag = f.waited()
	switch {
	case r.count(Ill) > 0:
		r.Worth = Sick
	case f.Forbidden || !f.Listed:
		r.Worth = Unknown
	}
	return r
}

// units are the usual names of the runtime's service, as patterns of systemctl. RKE2 has the socket
// of k3s.
func (f Facts) units() []string {
	name := strings.ToLower(f.Name + f.Host.Owner.Name + f.Endpoint)
	for _, known := range []struct {
		in    string
		units []string
	}{
		{"crio", []string{"crio"}},
		{"cri-o", []string{"crio"}},
		{"cri-dockerd", []string{"cri-docker"}},
		{"k3s", []string{"'k3s*'", "'rke2*'"}},
		{"k0s", []string{"'k0s*'"}},
		{"microk8s", []string{"snap.microk8s.daemon-containerd"}},
	} {
		if strings.Contains(name, known.in) {
			return known.units
		}
	}
	return []string{"containerd"}
}

// service is the usual name of the runtime's service, or the first of them.
func (f Facts) service() string { return f.units()[0] }

// journal is the command that shows the runtime's log. The containerd of k3s and RKE2 has a file.
func (f Facts) journal() string {
	text := fmt.Sprintf("journalctl -u %s -n 100", strings.Join(f.units(), " -u "))
	if len(f.units()) > 1 {
		text += "; tail /var/lib/rancher/*/agent/containerd/containerd.log"
	}
	return text
}

// log returns the command that shows the cause of the runtime's failure. If another process owns
// the socket, the failure may not be the runtime's.
func (f Facts) log() string {
	if o := f.Host.Owner; o.PID > 0 && !o.known() {
		return fmt.Sprintf(
			"pleg-bench doctor --endpoint with the runtime's own socket: is it the runtime, or process %d (%s) before it?",
			o.PID,
			o.Name,
		)
	}
	return f.journal()
}

func (f Facts) containerd() bool { return f.Name == "containerd" }

func unreachable(f Facts) []Finding {
	switch {
	case f.Forbidden:
		return []Finding{
			{
				ID:       "forbidden",
				Grade:    Note,
				Sentence: "this user may not connect to the runtime's socket",
				Evidence: []string{f.Unreachable},
				Change:   "if SELinux denies it: run the pod with the type spc_t (deploy/selinux); if the file modes do: run as root, or as a member of the group that owns the socket",
			},
		}
	case f.Unreachable != "":
		return []Finding{{
			ID:       "runtime-dead",
			Grade:    Ill,
			Sentence: "no runtime answers on " + f.Endpoint,
			Evidence: []string{f.Unreachable},
			Change:   fmt.Sprintf("systemctl status %s; %s", strings.Join(f.units(), " "), f.journal()),
		}}
	}
	return nil
}

// silent finds a runtime that takes connections and says nothing.
func silent(f Facts) []Finding {
	if slices.Contains(f.Host.Dead, strings.TrimPrefix(f.Endpoint, "unix://")) {
		return nil // nobody got as far as the runtime
	}
	if f.Unreachable != "" || len(f.Calls) == 0 || f.Calls[0].Hung == 0 || f.Calls[0].Hung < f.Calls[0].Count {
		return nil
	}
	evidence := []string{
		fmt.Sprintf(
			"%s of Version, which a runtime answers from memory",
			bench.Count(f.Calls[0].Count, "call"),
		),
	}
	change := fmt.Sprintf("%s; systemctl restart %s", f.journal(), strings.Join(f.units(), " "))
	if o := f.Host.Owner; o.PID > 0 {
		evidence = append(
			evidence,
			fmt.Sprintf("the socket belongs to process %d (%s), which is %s", o.PID, o.Name, o.words()),
		)
		switch {
		case o.stopped():
			change = o.resume()
		case !o.known():
			change = f.log()
		case f.service() == "containerd" && o.known():
			change = fmt.Sprintf(
				"kill -USR1 %d writes its goroutines to its log; then systemctl restart containerd",
				o.PID,
			)
		}
	}
	return []Finding{
		{
			ID:    "runtime-silent",
			Grade: Ill,
			Sentence: fmt.Sprintf(
				"the runtime takes connections and answered nothing in %s",
				bench.Seconds(f.Calls[0].MaxSeconds),
			),
			Evidence: evidence,
			Change:   change,
		},
	}
}

// words describes the state of a process.
func (p Process) words() string {
	text := map[string]string{
		"T": "stopped",
		"t": "stopped by a debugger",
		"D": "in uninterruptible sleep",
		"Z": "dead and not yet collected",
		"R": "running",
		"S": "sleeping",
	}[p.State]
	if text == "" {
		text = "in state " + p.State
	}
	if p.Wait != "" && p.Wait != "0" && p.State == "D" {
		text += " in " + p.Wait
	}
	return text
}

// stopped reports whether a process is stopped, by a signal or a debugger.
func (p Process) stopped() bool { return p.State == "T" || p.State == "t" }

// dead reports whether a process has ended, and is not yet collected or just being so.
func (p Process) dead() bool { return p.State == "Z" || p.State == "X" }

// conmon reports whether a process is CRI-O's monitor of a single container.
func (p Process) conmon() bool { return strings.HasPrefix(p.Name, "conmon") }

// role is the name for the keeper of an item.
func (p Process) role() string {
	if p.conmon() {
		return "monitor"
	}
	return "shim"
}

// resume is how a stopped process goes on.
func (p Process) resume() string {
	if p.State == "t" {
		return fmt.Sprintf("end the debugger: grep TracerPid /proc/%d/status", p.PID)
	}
	return fmt.Sprintf("kill -CONT %d", p.PID)
}

// The name of this program, and of its proxy command, which is no runtime.
const (
	ourName  = "pleg-bench"
	ourProxy = "proxy"
)

// known reports whether a process is a runtime by its name.
func (p Process) known() bool {
	return p.Name != ourName+" "+ourProxy &&
		slices.ContainsFunc(
			[]string{"containerd", "crio", "cri-dockerd", "k3s", "rke2", "systemd", "kubelite", "k0s", ourName},
			func(name string) bool {
				return strings.HasPrefix(p.Name, name)
			},
		)
}

func conditions(f Facts) (list []Finding) {
	for _, c := range f.Conditions {
		if c.OK {
			continue
		}
		change := f.journal()
		switch c.Type {
		case "NetworkReady":
			change = "ls /etc/cni/net.d: the network plugin of the cluster writes its configuration there; look at its pod on this node"
		case "ContainerdHasNoDeprecationWarnings":
			change = "ctr deprecations list"
		}
		grade := Note // such as containerd's warnings of deprecations
		if c.Type == "RuntimeReady" || c.Type == "NetworkReady" {
			grade = Ill // a kubelet makes the node NotReady for these
		}
		list = append(list, Finding{
			ID:       "not-ready",
			Grade:    grade,
			Sentence: fmt.Sprintf("the runtime says %s is false", c.Type),
			Evidence: []string{strings.TrimSpace(c.Reason + ": " + c.Message)},
			Change:   change,
		})
	}
	return list
}

// hanging finds items with unanswered calls, each with its shim. Items of a common shim are one
// finding.
func hanging(f Facts) (list []Finding) {
	byKeeper := make(map[string]int) // places in list
	for _, i := range f.Items {
		if !f.hangs(i) || f.hungForAll(i.Call) {
			continue
		}
		keeper := f.keeper(i)
		first, known := byKeeper[keeper]
		switch {
		case !known:
			byKeeper[keeper] = len(list)
			list = append(list, f.hang(i))
		case len(list[first].Evidence) < mostNamed:
			also := fmt.Sprintf("so does %s: %s; ID %s", i.words(), i.Call, i.ID)
			list[first].Evidence = append(list[first].Evidence, also)
		}
	}
	for id, shim := range f.Host.Shims {
		_, known := byKeeper[id]
		if shim.stopped() && !known {
			list = append(list, f.shimStopped(id, shim))
		}
	}
	slices.SortFunc(list, func(a, b Finding) int { return strings.Compare(a.Sentence, b.Sentence) })
	return several(list, "item-hangs", "more hang")
}

// keeper is the ID of what keeps an item: its sandbox, for whose items a shim speaks, or the item
// itself, as on CRI-O.
func (f Facts) keeper(i Item) string {
	_, own := f.Host.Shims[i.ID]
	if own || i.Sandbox == "" || f.service() == "crio" {
		return i.ID
	}
	return i.Sandbox
}

// hang is the finding about an item with an unanswered call.
func (f Facts) hang(i Item) Finding {
	how := "is not answered"
	seen := fmt.Sprintf("no answer in %s; ID %s", bench.Seconds(i.Seconds), i.ID)
	if !i.Hung {
		how = "fails"
		seen = fmt.Sprintf("an error after %s: %s; ID %s", bench.Seconds(i.Seconds), i.Error, i.ID)
	}
	finding := Finding{
		ID:       "item-hangs",
		Grade:    Ill,
		Sentence: fmt.Sprintf("%s hangs: %s %s", i.words(), i.Call, how),
		Evidence: []string{seen},
		Change: fmt.Sprintf(
			"crictl %s %.13s (which may hang as well); %s",
			i.inspect(),
			i.ID,
			f.journal(),
		),
	}
	if shim, ok := f.shimOf(i); ok {
		finding.Evidence = append(
			finding.Evidence,
			fmt.Sprintf("its %s, process %d (%s), is %s", shim.role(), shim.PID, shim.Name, shim.words()),
		)
		switch {
		case shim.stopped():
			finding.Change = shim.resume()
		case !shim.conmon(): // after the end of a conmon, CRI-O shows the old state for good
			finding.Change = fmt.Sprintf(
				"kill -9 %d ends the shim; the runtime then ends the pod, and the kubelet starts it anew",
				shim.PID,
			)
		}
	}
	for _, p := range f.Host.Stuck[i.ID] {
		finding.Evidence = append(
			finding.Evidence,
			fmt.Sprintf(
				"its process %d (%s) is %s: a disk or a network file system that does not answer",
				p.PID,
				p.Name,
				p.words(),
			),
		)
	}
	return finding
}

// shimStopped is the finding about a stopped shim that no call has met.
func (f Facts) shimStopped(id string, shim Process) Finding {
	kept := "sandbox " + id[:min(len(id), 13)]
	if item, ok := f.Kept[id]; ok {
		kept = item.words()
	}
	what := "its containers cannot be stopped, and their ends are not seen"
	if shim.conmon() {
		what = "its end is not seen"
	}
	return Finding{
		ID:       "shim-stopped",
		Grade:    Ill,
		Sentence: fmt.Sprintf("the %s of %s is %s: %s", shim.role(), kept, shim.words(), what),
		Evidence: []string{fmt.Sprintf("process %d (%s); ID %s", shim.PID, shim.Name, id)},
		Change:   shim.resume(),
	}
}

// hangs reports whether an item hangs: the runtime gives no answer, or gives up because of a silent
// or stopped shim.
func (f Facts) hangs(i Item) bool {
	shim, ok := f.shimOf(i)
	return i.Hung || i.Seconds >= lateError || ok && shim.stopped()
}

// hungForAll reports whether a call for single items was answered for none of many.
func (f Facts) hungForAll(method string) bool {
	return slices.ContainsFunc(f.Calls, func(c Call) bool { return c.Method == method && c.hungForAll() })
}

func (c Call) hungForAll() bool { return c.Count > 2 && c.Hung == c.Count }

// failsForAll reports whether a call for single items failed for all of many, and at once: the call
// is at fault, and no item. Of items whose shims give no answer each is at fault.
func (f Facts) failsForAll(method string) bool {
	failed := slices.ContainsFunc(f.Calls, func(c Call) bool {
		return c.Method == method && c.Count > 2 && c.Failed == c.Count
	})
	met := false
	for _, i := range f.Items {
		if i.Call != method {
			continue
		}
		if f.hangs(i) {
			return false
		}
		met = true
	}
	return failed && met
}

// several bounds the findings of a kind.
func several(list []Finding, id, more string) []Finding {
	const most = 10
	if len(list) <= most {
		return list
	}
	rest := Finding{id, Ill, fmt.Sprintf("%d %s", len(list)-most, more), nil, ""}
	return append(list[:most:most], rest)
}

func (i Item) words() string {
	where := fmt.Sprintf("pod %s/%s", i.Namespace, i.Pod)
	if i.Pod == "" { // lists show no sandbox of a container, or one without metadata
		where = "an unnamed pod"
	}
	if i.Kind == "container" && i.Name == "" { // of which only an event told
		return "a container of " + where
	}
	if i.Kind == "container" {
		return fmt.Sprintf("container %s of %s", i.Name, where)
	}
	return "the sandbox of " + where
}

// firstOf names the first of some items, as evidence.
func firstOf(items []Item) (evidence []string) {
	for _, i := range items[:min(len(items), mostNamed)] {
		evidence = append(evidence, i.String())
	}
	return evidence
}

// inspect is the command of crictl for the item.
func (i Item) inspect() string {
	if i.Kind == "container" {
		return "inspect"
	}
	return "inspectp"
}

// shimOf returns the shim or monitor of an item.
func (f Facts) shimOf(i Item) (Process, bool) {
	for _, id := range []string{i.ID, i.Sandbox} {
		if shim, ok := f.Host.Shims[id]; ok && id != "" {
			return shim, true
		}
	}
	return Process{}, false
}

// calls finds hanging, failing and slow calls, apart from calls for single items.
func calls(f Facts) (list []Finding) {
	for n, c := range f.Calls {
		single := slices.Contains(itemCalls, c.Method)
		change := f.log()
		usual := fmt.Sprintf("usual on a quiet node of this size: %s", bench.Seconds(c.UsualSeconds))
		switch {
		case c.Hung > 0 && n > 0 && (!single || c.hungForAll()):
			list = append(list, Finding{
				ID:       "call-hangs",
				Grade:    Ill,
				Sentence: fmt.Sprintf("%s is not answered", c.Method),
				Evidence: []string{
					fmt.Sprintf(
						"%d of %s without an answer in %s; %s",
						c.Hung,
						bench.Count(c.Count, "call"),
						bench.Seconds(c.MaxSeconds),
						usual,
					),
				},
				Change: change,
			})
		case c.Failed > 0 && !single || f.failsForAll(c.Method):
			list = append(list, Finding{
				ID:       "call-fails",
				Grade:    Ill,
				Sentence: c.Method + " fails",
				Evidence: []string{fmt.Sprintf("%d of %s: %s", c.Failed, bench.Count(c.Count, "call"), c.Error)},
				Change:   change,
			})
		case c.Hung == 0 && c.doneSeconds > max(slowFrom, slowBy*c.UsualSeconds, lagBy*f.waited()):
			list = append(list, Finding{
				ID:       "call-slow",
				Grade:    Ill,
				Sentence: fmt.Sprintf("%s took %s", c.Method, bench.Seconds(c.doneSeconds)),
				Evidence: []string{usual},
				Change:   "top, iostat -x 1: is it CPU or disk? A proxy on the socket?",
			})
		}
	}
	return list
}

// lists finds lists that lack what was there before and after, or had been there long before.
func lists(f Facts) []Finding {
	if len(f.Missed) == 0 {
		return nil
	}
	n := len(f.Missed)
	least := ""
	if f.Unsure > 0 {
		least = "at least "
	}
	sentence := "a list lacked " + least + bench.Count(n, "item that was there", "items that were there")
	if f.Blank {
		sentence = "the runtime lists nothing, and " + least + bench.Count(n, "item is there", "items are there")
	}
	return []Finding{{
		ID:       "lists-differ",
		Grade:    Ill,
		Sentence: sentence,
		Evidence: firstOf(f.Missed),
		Change:   f.log() + ": has the runtime just started?",
	}}
}

// unlisted finds shims of which no list shows what they keep, and a runtime that lists nothing at
// all: one that has lost its state, or that no kubelet uses.
func unlisted(f Facts) []Finding {
	n := len(f.Host.Strays)
	switch {
	case n > 0 && (f.Empty || f.Blank):
		return []Finding{{
			ID:       "shims-unlisted",
			Grade:    Ill,
			Sentence: "the runtime lists nothing, and " + bench.Count(n, "shim of its own runs", "shims of its own run"),
			Evidence: f.strays(),
			Change: "systemctl stop kubelet: it starts all pods anew beside those that run; " + f.journal() +
				": has the runtime lost its folders, as on a disk that is not mounted (findmnt)? Mend that, or restart the node",
		}}
	case n > 0:
		return []Finding{{
			ID:       "shims-unlisted",
			Grade:    Note,
			Sentence: bench.Count(n, "shim runs", "shims run") + " that no list shows",
			Evidence: f.strays(),
			Change: "made by hand (ctr, nerdctl)? Else the runtime has forgotten it, and its containers run on: " +
				f.journal(),
		}}
	case f.Empty && !f.Blank:
		seen := "no shim of this runtime runs"
		if !f.Host.Seen {
			seen = "shims cannot be seen from here: perhaps containers run"
		}
		return []Finding{{
			ID:       "lists-empty",
			Grade:    Note,
			Sentence: "the runtime lists no pod and no container, as no node in service does",
			Evidence: []string{seen},
			Change: "is it the kubelet's runtime? ps -C kubelet -o args: --container-runtime-endpoint; has it just started? " +
				f.log(),
		}}
	}
	return nil
}

// strays names the first of the shims that no list shows, as evidence.
func (f Facts) strays() (evidence []string) {
	ids := slices.Sorted(maps.Keys(f.Host.Strays))
	for _, id := range ids[:min(len(ids), mostNamed)] {
		shim := f.Host.Strays[id]
		evidence = append(evidence, fmt.Sprintf("process %d (%s); ID %s", shim.PID, shim.Name, id))
	}
	return evidence
}

func unreadable(f Facts) []Finding {
	var evidence []string
	n := 0
	statistics := 0 // unreadable in so many items: nothing else
	forAll := make(map[string]bool)
	for _, method := range itemCalls {
		forAll[method] = f.failsForAll(method)
	}
	for _, i := range f.Items {
		if f.hangs(i) || forAll[i.Call] {
			continue
		}
		n++
		if i.Call == "ContainerStats" {
			statistics++
		}
		if len(evidence) < mostNamed {
			evidence = append(evidence, fmt.Sprintf("%s, %s of %s: %s", i.words(), i.Call, i.ID, i.Error))
		}
	}
	if n == 0 {
		return nil
	}
	if statistics == n {
		return []Finding{{
			ID:       "items-unreadable",
			Grade:    Ill,
			Sentence: fmt.Sprintf("the statistics of %s cannot be read", bench.Count(n, "running container")),
			Evidence: evidence,
			Change:   f.log() + ": what of its shim?",
		}}
	}
	return []Finding{{
		ID:       "items-unreadable",
		Grade:    Ill,
		Sentence: fmt.Sprintf("%s listed and cannot be read", bench.Count(n, "item is", "items are")),
		Evidence: evidence,
		Change:   "crictl rm or crictl rmp of such an item, after a look at its pod: the kubelet makes it anew",
	}}
}

func kubelet(f Facts) []Finding {
	if f.Host.KubeletHealth == "" {
		return nil
	}
	return []Finding{{
		ID:       "kubelet-unhealthy",
		Grade:    Ill,
		Sentence: "the kubelet says that it is not healthy",
		Evidence: []string{f.Host.KubeletHealth},
		Change:   "journalctl -u kubelet -n 100; the findings beside this one are the likely cause",
	}}
}

// mounts finds paths about which the kernel gives no answer. The runtime and the kubelet look at
// most of them, and hang as well.
func mounts(f Facts) []Finding {
	dead := f.Host.Dead
	if len(dead) == 0 {
		return nil
	}
	var evidence []string
	for _, path := range dead[:min(len(dead), mostNamed)] {
		evidence = append(evidence, fmt.Sprintf("%s: no answer in %s", path, bench.Seconds(deadmount.LookIn.Seconds())))
	}
	more := ""
	if n := len(dead) - 1; n > 0 {
		more = " and " + bench.Count(n, "other path")
	}
	return []Finding{{
		ID:       "mount-dead",
		Grade:    Ill,
		Sentence: "the kernel gives no answer about " + dead[0] + more,
		Evidence: evidence,
		Change: "findmnt -t nfs,nfs4,cifs,ceph,fuse: which server or FUSE daemon is gone? umount -l of that mount; " +
			"for a path in /proc: cat /proc/PID/stack",
	}}
}

func disks(f Facts) (list []Finding) {
	for _, d := range f.Host.Disks {
		evidence := []string{fmt.Sprintf("%s of %s free", bench.Bytes(d.FreeBytes), bench.Bytes(d.Bytes))}
		if d.Inodes > 0 { // some file systems have no bound
			evidence = append(evidence, fmt.Sprintf("%d of %d inodes free", d.FreeInodes, d.Inodes))
		}
		full := d.Bytes > 0 && float64(d.FreeBytes) < diskFree*float64(d.Bytes)
		filled := d.Inodes > 0 && float64(d.FreeInodes) < inodesFree*float64(d.Inodes)
		if full || filled {
			list = append(list, Finding{
				ID:       "disk-full",
				Grade:    Ill,
				Sentence: "the file system of " + cmp.Or(d.Means, d.Path) + " is full",
				Evidence: evidence,
				Change: fmt.Sprintf(
					"du -xh -d3 %s | sort -h | tail -20: who writes? crictl rmi --prune",
					cmp.Or(d.Mount, d.Path),
				),
			})
		}
	}
	return list
}

func clocks(f Facts) (list []Finding) {
	if f.AheadSeconds > clockOff {
		list = append(list, Finding{
			ID:    "clock-behind",
			Grade: Ill,
			Sentence: fmt.Sprintf(
				"the machine's clock is behind the stamps of %s, by up to %s: it was set back, or the stamps are wrong",
				bench.Count(len(f.Ahead), "item"),
				bench.Seconds(f.AheadSeconds),
			),
			Evidence: firstOf(f.Ahead),
			Change:   "timedatectl; chronyc tracking",
		})
	}
	if f.BehindSeconds > clockOff {
		list = append(list, Finding{
			ID:    "stamps-behind",
			Grade: Ill,
			Sentence: fmt.Sprintf(
				"the runtime stamps what happens now %s too early",
				bench.Seconds(f.BehindSeconds),
			),
			Evidence: []string{"items that came during the examination were stamped before it"},
			Change:   "timedatectl; chronyc tracking: was the clock set just now? is the runtime on another machine?",
		})
	}
	if f.Host.Unsynchronised {
		list = append(list, Finding{
			ID:       "clock-free",
			Grade:    Note,
			Sentence: "no time source keeps the machine's clock",
			Evidence: []string{"adjtimex: STA_UNSYNC"},
			Change:   "systemctl status chronyd systemd-timesyncd",
		})
	}
	return list
}

func leftovers(f Facts) (list []Finding) {
	if f.Exited > max(manyExited, 2*f.Running) {
		list = append(list, Finding{
			ID:       "exited-left",
			Grade:    Ill,
			Sentence: fmt.Sprintf("%d exited containers are left, which every list carries", f.Exited),
			Evidence: []string{
				fmt.Sprintf(
					"%s running; the most, %d, in pod %s/%s",
					bench.Count(f.Running, "container"),
					f.MostExitedCount,
					f.MostExited.Namespace,
					f.MostExited.Pod,
				),
			},
			Change: "crictl rm $(crictl ps -a -q --state Exited); the kubelet's maximum-dead-containers; why does the pod restart so often?",
		})
	}
	if ready := f.Pods - f.NotReady; f.NotReady > max(manyExited, 2*ready) {
		list = append(list, Finding{
			ID:       "sandboxes-left",
			Grade:    Ill,
			Sentence: fmt.Sprintf("%d sandboxes that are not ready are left", f.NotReady),
			Change:   "crictl rmp $(crictl pods -q --state NotReady)",
		})
	}
	return list
}

func events(f Facts) (list []Finding) {
	s := f.Stream
	switch {
	case !f.Listed || s.Judged:
	case s.Skipped != "":
		list = append(list, Finding{
			ID:       "events-skipped",
			Grade:    Note,
			Sentence: "the event stream was not listened to",
			Evidence: []string{s.Skipped},
		})
	case s.Ended != "":
		list = append(list, f.streamEnd())
	case len(s.Untold) > 0:
		list = append(list, f.streamSilent())
	}
	if s.Replayed > 0 && f.BehindSeconds <= clockOff { // with a clock behind, what happens now looks old
		list = append(list, Finding{
			ID:    "events-replayed",
			Grade: Note,
			Sentence: fmt.Sprintf(
				"%s of before came first: nobody had listened",
				bench.Count(s.Replayed, "event"),
			),
			Evidence: []string{fmt.Sprintf("the oldest was %s old", bench.Seconds(s.OldestSeconds))},
		})
	}
	return list
}

// streamSilent is the finding about an open event stream that tells nothing of what changes, or not
// of all of it.
func (f Facts) streamSilent() Finding {
	s := f.Stream
	sentence := fmt.Sprintf(
		"the event stream told nothing of %d of %s",
		len(s.Untold),
		bench.Count(s.Changed, "item that changed", "items that changed"),
	)
	if s.Received == s.Replayed {
		sentence = "the event stream is open and carries nothing: no event of " +
			bench.Count(len(s.Untold), "container that changed", "containers that changed")
	}
	change := "pleg-bench watch judges the stream; "
	if f.service() == "crio" {
		change += "another subscriber that does not read holds the stream up: ss -xp names the subscribers; "
	}
	return Finding{
		ID:       "events-silent",
		Grade:    Ill,
		Sentence: sentence,
		Evidence: firstOf(s.Untold),
		Change:   change + f.log() + f.anew(),
	}
}

// anew says how a runtime's stream begins anew. Behind a proxy it is not known to be the runtime's.
func (f Facts) anew() string {
	if o := f.Host.Owner; o.PID > 0 && !o.known() {
		return ""
	}
	return fmt.Sprintf(
		"; agents see changes by their lists only until systemctl restart %s, in which pods run on",
		strings.Join(f.units(), " "),
	)
}

// streamEnd is the finding about an event stream that ended.
func (f Facts) streamEnd() Finding {
	s := f.Stream
	switch {
	case s.Ended == ended.eof && s.Received > 0: // so events are on
		return Finding{
			ID:       "events-fail",
			Grade:    Ill,
			Sentence: "the event stream ended after " + bench.Count(s.Received, "event"),
			Evidence: []string{"GetContainerEvents ends with EOF, as of a runtime that stops"},
			Change:   f.journal(),
		}
	case s.Ended == ended.eof && f.service() == "crio":
		return Finding{
			ID:       "events-off",
			Grade:    Costly,
			Sentence: "container events are turned off: agents can only poll",
			Evidence: []string{"GetContainerEvents ends at once"},
			Change:   "enable_pod_events = true under [crio.runtime] in crio.conf",
		}
	case s.Ended == ended.eof:
		return Finding{
			ID:       "events-off",
			Grade:    Costly,
			Sentence: "the event stream ends at once: agents can only poll",
			Evidence: []string{"GetContainerEvents ends with EOF"},
		}
	case s.Ended == ended.none:
		return Finding{
			ID:       "events-lacking",
			Grade:    Costly,
			Sentence: "this runtime has no event stream: agents can only poll",
			Evidence: []string{"GetContainerEvents: Unimplemented"},
			Change:   "a newer version: containerd 1.7, CRI-O 1.26",
		}
	}
	return Finding{
		ID:       "events-fail",
		Grade:    Ill,
		Sentence: "the event stream ended",
		Evidence: []string{s.Ended},
		Change:   f.journal(),
	}
}

func pressure(f Facts) (list []Finding) {
	for _, resource := range slices.Sorted(maps.Keys(f.Host.Pressure)) {
		if share := f.Host.Pressure[resource]; share > pressed {
			list = append(list, Finding{
				ID:    "pressure",
				Grade: Ill,
				Sentence: fmt.Sprintf(
					"all work waited for %s in %.0f %% of the last ten seconds",
					resource,
					100*share,
				),
				Evidence: []string{"/proc/pressure/" + resource},
				Change:   "top; iostat -x 1; systemd-cgtop",
			})
		}
	}
	return list
}

// costs finds the consumers of CPU on a quiet node.
func costs(f Facts) (list []Finding) {
	perSecond := func(cpu float64) string { return fmt.Sprintf("%.0f ms/s of CPU", 1000*cpu) }
	measured := "the runtime's CPU could not be measured from here"
	if f.Host.Owner.PID > 0 {
		measured = fmt.Sprintf(
			"the runtime used %s with %s running, its %s %s",
			perSecond(f.Host.Owner.CPU),
			bench.Count(f.Running, "container"),
			bench.Count(f.Host.ShimsRun, "shim"),
			perSecond(f.Host.ShimCPU),
		)
	}
	if f.containerd() && f.StatsPeriod != nil && f.Running > 0 {
		period, err := time.ParseDuration(*f.StatsPeriod)
		if *f.StatsPeriod == "" || err == nil && period > 0 && period < 5*time.Second {
			text := *f.StatsPeriod
			if text == "" {
				text = "1s, the default"
			}
			list = append(list, Finding{
				ID:       "stats-collector",
				Grade:    Costly,
				Sentence: "containerd reads the statistics of every container from its shim, every " + text,
				Evidence: []string{
					measured,
					"measured elsewhere with 30 pods: 112 ms/s of CPU, and 45 at 10 s",
				},
				Change: "[plugins.'io.containerd.cri.v1.runtime'] stats_collect_period = '10s' in config.toml (never 0s: containerd 2.4 panics)",
			})
		}
	}
	if n := f.Host.ShimsRun; n >= 10 && f.containerd() && f.Listed && f.Stream.Changed == 0 &&
		len(list) == 0 { // else their CPU is for something else
		list = append(list, Finding{
			ID:       "shims-wake",
			Grade:    Note,
			Sentence: fmt.Sprintf("each of %d shims wakes every 30 s to give memory back", n),
			Evidence: []string{
				fmt.Sprintf("the shims used %s", perSecond(f.Host.ShimCPU)),
				"measured elsewhere: 9 ms/s for 30 shims without any call",
			},
		})
	}
	if f.Host.Owner.CPU > busyRuntime && f.Stream.Changed == 0 && f.Listed && len(list) == 0 {
		list = append(list, Finding{
			ID:       "cpu-quiet",
			Grade:    Note,
			Sentence: "the runtime works although nothing changes",
			Evidence: []string{measured},
			Change:   "who calls it? see its metrics, grpc_server_handled_total",
		})
	}
	return list
}

// others finds who else calls the runtime.
func others(f Facts) (list []Finding) {
	if o := f.Host.Owner; o.PID > 0 && !o.known() {
		what := "which is no runtime by its name, but perhaps a proxy"
		if o.Name == ourName+" "+ourProxy {
			what = "which disturbs the runtime by rules"
		}
		list = append(list, Finding{
			ID:       "socket-owner",
			Grade:    Note,
			Sentence: fmt.Sprintf("the socket is served by %s, %s", o.Name, what),
			Evidence: []string{fmt.Sprintf("process %d", o.PID)},
		})
	}
	var evidence []string
	for _, p := range f.Host.Callers[:min(len(f.Host.Callers), 2*mostNamed)] {
		evidence = append(
			evidence,
			fmt.Sprintf("process %d (%s) names the socket in its arguments", p.PID, p.Name),
		)
	}
	busy := false
	for _, method := range slices.Sorted(maps.Keys(f.ListsAMinute)) {
		rate := f.ListsAMinute[method]
		busy = busy || rate > 40
		evidence = append(evidence, fmt.Sprintf("%.0f %s a minute, by %s", rate, method, f.MetricsAddress))
	}
	switch {
	case busy:
		list = append(list, Finding{
			ID:       "polled",
			Grade:    Costly,
			Sentence: "somebody lists the runtime about once a second",
			Evidence: evidence,
			Change:   "a kubelet with evented PLEG, and agents that follow events, list far less",
		})
	case f.Host.Clients == 0 && len(evidence) > 0:
		list = append(list, Finding{
			ID:       "clients",
			Grade:    Note,
			Sentence: "others may call the runtime",
			Evidence: evidence,
		})
	case f.Host.Clients > 0:
		list = append(list, Finding{
			ID:       "clients",
			Grade:    Note,
			Sentence: fmt.Sprintf("others hold %s to the runtime", bench.Count(f.Host.Clients, "connection")),
			Evidence: evidence,
		})
	}
	return list
}

// limits finds the parts of the node out of the examination's sight.
func limits(f Facts) (list []Finding) {
	if !f.Host.Seen && f.Unreachable == "" {
		list = append(list, Finding{
			ID:       "host-unseen",
			Grade:    Note,
			Sentence: "processes and disks of the node cannot be seen from here",
			Evidence: []string{"no process of the runtime in /proc"},
			Change:   "in a pod: hostPID: true",
		})
	}
	if f.StoodSeconds > lagging {
		list = append(list, f.stood())
	}
	if f.Unexamined > 0 {
		list = append(list, f.unexamined())
	}
	return list
}

// stood is the finding about the standstills of this program.
func (f Facts) stood() Finding {
	evidence := []string{
		fmt.Sprintf(
			"%s, the longest of %s; no time of a call includes them",
			bench.Count(f.Stood, "standstill"),
			bench.Seconds(f.LongestSeconds),
		),
	}
	if f.Again > 0 {
		evidence = append(
			evidence,
			bench.Count(f.Again, "call that failed meanwhile was", "calls that failed meanwhile were")+" made again",
		)
	}
	return Finding{
		ID:    "no-cpu",
		Grade: Note,
		Sentence: fmt.Sprintf(
			"this program did not run for %s: it was stopped, or had no CPU",
			bench.Seconds(f.StoodSeconds),
		),
		Evidence: evidence,
		Change:   "top; cat /sys/fs/cgroup/cpu.stat: was it throttled?",
	}
}

// unexamined is the finding about unread items.
func (f Facts) unexamined() Finding {
	items := bench.Count(f.Unexamined, "item")
	if f.Spared != "" {
		return Finding{
			ID:       "unexamined",
			Grade:    Note,
			Sentence: items + " not examined, for the runtime's sake",
			Evidence: []string{f.Spared},
		}
	}
	return Finding{
		ID:       "unexamined",
		Grade:    Note,
		Sentence: "there was no time for " + items,
		Change:   "--within 1m",
	}
}

// unseen returns the areas out of the examination's sight, in the order of their table.
func (f Facts) unseen() []Unseen {
	why := make(map[string]string)
	if f.Looked {
		maps.Copy(why, f.Host.Unseen)
		if !f.Host.Seen && f.Unreachable == "" {
			why["processes"] = "no process of the runtime in /proc"
		}
		if f.ListsAMinute == nil {
			why["rates"] = "no metrics of the runtime can be read from here"
		}
	}
	switch {
	case f.Unexamined > 0:
		why["items"] = strings.TrimSuffix(
			fmt.Sprintf("%s of %d: %s", bench.Count(f.Unexamined, "item"), f.Pods+f.Containers, f.Spared),
			": ",
		)
	case !f.Listed:
		why["items"] = "the runtime gave no list"
	}
	s := f.Stream
	switch {
	case s.Judged:
	case s.Skipped != "":
		why["events"] = s.Skipped
	case f.Listed && s.Ended == "" && s.Changed == 0 && s.Received == s.Replayed:
		why["events"] = "nothing changed while it was open, so nothing shows whether it tells of changes (--within 1m)"
	}
	list := []Unseen{}
	for _, area := range findings.Areas {
		if text, ok := why[area.Name]; ok {
			list = append(list, Unseen{area.Name, text})
		}
	}
	return list
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
)

const (
	// maxNames bounds the remembered names.
	maxNames = 10_000
	// repeatEvery is how often a repeated report is printed.
	repeatEvery = 10 * time.Second
	// maxReports bounds the reports with remembered repetitions.
	maxReports = 1000
	// timeForm is the time format of a line.
	timeForm = "15:04:05.000"
)

// names are the names of a pod for people.
type names struct{ namespace, pod string }

// printer prints events and states. The loop owns it.
type printer struct {
	options   Options
	client    *cri.Client
	generator *pleg.Generator[cri.PodStatus]
	cache     *cache.Cache[cri.PodStatus]
	names     map[cache.UID]names
	order     []cache.UID // of names, oldest first
	tap       *tap
	printed   int
	// reports counts the generator's reports by reason, repeats the printed ones of each.
	reports map[pleg.Reason]int
	repeats map[string]*repeat
	// connected adds up the time in which the stream was connected, until lookedAt.
	connected time.Duration
	lookedAt  time.Time

	// state, period and missed are as they were printed last, and spoke is when.
	state  pleg.StreamState
	period time.Duration
	missed int
	health string
	looked bool
	spoke  time.Time
}

// repeat is how often a report came since its last printing.
type repeat struct {
	at time.Time
	n  int
}

func newPrinter(o Options, w watched) *printer {
	return &printer{
		options: o, client: w.client, generator: w.generator, cache: w.cache, tap: w.tap, names: make(map[cache.UID]names),
		reports: make(map[pleg.Reason]int), repeats: make(map[string]*repeat),
	}
}

// header names the columns.
func (p *printer) header() error {
	switch {
	case p.options.Output == "json":
		return nil
	case p.options.Raw:
		_, err := fmt.Fprintf(p.options.Out, rawForm, "TIME", "EVENT", "AGE", "BYTES", "OF", "POD AND WHAT THE EVENT SHOWS")
		return err
	}
	_, err := fmt.Fprintf(p.options.Out, eventForm, "TIME", "EVENT", "FROM", "DELAY", "POD, CONTAINER, ID")
	return err
}

const (
	eventForm = "%-12s  %-16s  %-5s  %8s  %s\n"
	rawForm   = "%-12s  %-8s  %8s  %6s  %-15s  %s\n"
)

// line is an event in JSON.
type line struct {
	Time      time.Time `json:"time"`
	Type      string    `json:"type"`
	Kind      string    `json:"kind,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	UID       string    `json:"uid"`
	Container string    `json:"container,omitempty"`
	ID        string    `json:"id,omitempty"`
	ExitCode  *int32    `json:"exit_code,omitempty"`
	Source    string    `json:"source"`
	// LatencySeconds is from the runtime's stamp of the event to now; nil when a read found the
	// change.
	LatencySeconds *float64 `json:"latency_seconds,omitempty"`
	State          string   `json:"state"`
}

// stateLine is a change of the generator's own state in JSON.
type stateLine struct {
	Time                time.Time `json:"time"`
	Type                string    `json:"type"`
	State               string    `json:"state"`
	RelistPeriodSeconds float64   `json:"relist_period_seconds"`
	Missed              int       `json:"missed"`
	Health              string    `json:"health,omitempty"`
}

// event prints an event.
func (p *printer) event(e pleg.Event, now time.Time) error {
	status, _ := p.cache.Get(e.Pod)
	n := p.learn(e, status)
	if p.options.Namespace != "" && n.namespace != p.options.Namespace {
		return nil
	}
	p.printed++
	p.spoke = now
	l := line{
		Time: now, Type: string(e.Type), Namespace: n.namespace, Pod: n.pod, UID: string(e.Pod), Container: e.ContainerName, ID: e.ID,
		Source: e.Cause.String(), State: p.generator.Stats().State.String(),
	}
	if e.ID != "" {
		l.Kind = e.Kind.String()
	}
	if e.Type == pleg.ContainerDied && e.Kind == pleg.Container {
		if code, ok := p.client.ExitCode(e.ID); ok {
			l.ExitCode = new(code)
		}
	}
	late := ""
	if !e.Stamp.IsZero() {
		d := now.Sub(e.Stamp)
		l.LatencySeconds = new(d.Seconds())
		late = bench.Short(max(d, 0))
	}
	if p.options.Output == "json" {
		return json.NewEncoder(p.options.Out).Encode(l)
	}
	what := l.Kind
	if l.Container != "" {
		what = l.Container
	}
	if l.ExitCode != nil {
		what += fmt.Sprintf(" (exit %d)", *l.ExitCode)
	}
	from := "event"
	if e.Cause == pleg.CauseRead {
		from = "read"
	}
	what = strings.TrimSpace(fmt.Sprintf("%s/%s %s %.13s", or(l.Namespace, "?"), or(l.Pod, string(e.Pod)), what, e.ID))
	_, err := fmt.Fprintf(p.options.Out, eventForm, now.Format(timeForm), e.Type, from, late, what)
	return err
}

// learn remembers the name of a pod, because later reports of its reads have the UID only.
func (p *printer) learn(e pleg.Event, status *cri.PodStatus) names {
	n, ok := p.names[e.Pod]
	if told := (names{namespace: e.Namespace, pod: e.PodName}); told != (names{}) {
		n = told
	} else if n.pod == "" {
		n = names{namespace: status.Namespace(), pod: status.Name()}
	}
	if !ok && n != (names{}) {
		p.order = append(p.order, e.Pod)
		if len(p.order) > maxNames {
			delete(p.names, p.order[0])
			p.order = p.order[1:]
		}
	}
	if n != (names{}) {
		p.names[e.Pod] = n
	}
	return n
}

// look prints the content of the tap, and the changes of the generator itself.
func (p *printer) look(now time.Time) error {
	st := p.generator.Stats()
	if st.State == pleg.StreamConnected && !p.lookedAt.IsZero() {
		p.connected += now.Sub(p.lookedAt)
	}
	p.lookedAt = now
	p.tap.sample(now, st)
	if err := p.harvest(now); err != nil {
		return err
	}
	health := ""
	if err := p.generator.Health(); err != nil {
		health = err.Error()
	}
	changed := !p.looked || st.State != p.state || st.RelistPeriod != p.period || st.Missed != p.missed || health != p.health
	if !changed && (p.options.StatusEvery == 0 || now.Sub(p.spoke) < p.options.StatusEvery) {
		return nil
	}
	p.looked, p.state, p.period, p.missed, p.health, p.spoke = true, st.State, st.RelistPeriod, st.Missed, health, now
	if p.options.Output == "json" {
		if !changed {
			return nil
		}
		return json.NewEncoder(p.options.Out).Encode(stateLine{
			Time: now, Type: "State", State: st.State.String(), RelistPeriodSeconds: st.RelistPeriod.Seconds(), Missed: st.Missed, Health: health,
		})
	}
	_, err := fmt.Fprintf(p.options.Err, "%s  stream %s, relist period %s; %d pods, %d received, %d missed%s\n",
		now.Format(timeForm), st.State, bench.Short(st.RelistPeriod), len(p.cache.UIDs()), st.Claims, st.Missed, withSep("; unhealthy: ", health))
	return err
}

func or(s, none string) string {
	if s != "" {
		return s
	}
	return none
}

// times says how often in words.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprint(n, " times")
}

func withSep(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}

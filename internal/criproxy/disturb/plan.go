// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package disturb disturbs the calls through a CRI proxy by a plan in words, and counts its doings
// kind by kind.
//
// # Model
//
// A [Plan] is a list of rules, each in one word such as drop=STOPPED:0.2 ([Parse], [Words]). A
// [Disturber] puts the rules in force on a [criproxy.Proxy] when their time comes, and lifts them.
// Its [Tally] has every event by type, and every call by method: passed, dropped, delayed, held,
// refused. The proxy decodes events for the tally and the rules alone; all messages pass unchanged.
//
// # Concurrency
//
// All methods are safe for concurrent use. [Disturber.Run] returns when every rule is lifted and
// everything it started has ended.
//
// # Errors
//
// Parse names the word, the bad part and the right form.
package disturb

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// Kinds of rules.
const (
	Drop   = "drop"
	Delay  = "delay"
	Stall  = "stall"
	Cut    = "cut"
	Hang   = "hang"
	Refuse = "refuse"
)

// A Word documents a kind of rule.
type Word struct{ Name, Form, Example, Help string }

// Words returns the kinds of rules, in the order of display.
func Words() []Word {
	return []Word{
		{
			Drop,
			"[TYPE:]SHARE",
			"drop=STOPPED:0.2",
			"drops a share of the events: of all, or of a type (CREATED, STARTED, STOPPED, DELETED), for sandboxes or containers alone as sandbox/STOPPED",
		},
		{Delay, "[CALLS:]DURATION", "delay=lists:3s", "delivers each reply, or event, that much later"},
		{
			Stall,
			"[CALLS]",
			"stall=events",
			"delivers nothing more: replies and events wait until the rule ends (without CALLS: events)",
		},
		{Cut, "DURATION", "cut=30s", "closes all connections of clients once in that time"},
		{
			Hang,
			"CALLS or ID",
			"hang=3f2a91c0",
			"keeps calls from the runtime until the rule ends: of a method, or those that name a container or sandbox (8 or more digits of its ID)",
		},
		{
			Refuse,
			"CALLS[:SHARE]",
			"refuse=lists:0.5",
			"answers a share of the calls with Unavailable; the runtime never sees them",
		},
	}
}

// groups are the names for several methods.
var groups = map[string][]string{
	"events":   {"GetContainerEvents"},
	"lists":    {"ListContainers", "ListPodSandbox", "StreamContainers", "StreamPodSandboxes"},
	"statuses": {"ContainerStatus", "PodSandboxStatus"},
	"all":      {""},
}

// methods are those of the CRI, beside which nothing can be disturbed.
var methods = []string{
	"Version",
	"Status",
	"RunPodSandbox",
	"StopPodSandbox",
	"RemovePodSandbox",
	"PodSandboxStatus",
	"ListPodSandbox",
	"CreateContainer",
	"StartContainer",
	"StopContainer",
	"RemoveContainer",
	"ListContainers",
	"ContainerStatus",
	"UpdateContainerResources",
	"ReopenContainerLog",
	"ExecSync",
	"Exec",
	"Attach",
	"PortForward",
	"ContainerStats",
	"ListContainerStats",
	"PodSandboxStats",
	"ListPodSandboxStats",
	"UpdateRuntimeConfig",
	"CheckpointContainer",
	"GetContainerEvents",
	"ListMetricDescriptors",
	"ListPodSandboxMetrics",
	"RuntimeConfig",
	"StreamContainers",
	"StreamPodSandboxes",
	"ListImages",
	"ImageStatus",
	"PullImage",
	"RemoveImage",
	"ImageFsInfo",
}

// A Rule is a disturbance for a time.
type Rule struct {
	// Text is the rule as it was written.
	Text string
	// Kind is one of the kinds of rules.
	Kind string
	// Methods are the disturbed methods, by bare name; "" is every method.
	Methods []string
	// Type and Item restrict a Drop to a type of event, and to those of a sandbox or a container;
	// empty for all.
	Type, Item string
	// Share is how many of the events or calls it concerns, above 0 and at most 1.
	Share float64
	// For is how long a Delay delays, and the time between two Cuts.
	For time.Duration
	// ID is the begin of the ID in the calls of a Hang, empty for all calls.
	ID string
	// From and To bound the time in which the rule is in force, since the begin; To 0 is for good.
	From, To time.Duration
}

// Plan is a list of rules.
type Plan []Rule

// Parse returns the plan of rules in words: NAME=VALUE, and an optional time of force since the
// begin, @FROM or @FROM-TO, such as stall=events@10s-20s.
func Parse(words ...string) (Plan, error) {
	var plan Plan
	for _, text := range words {
		rule, err := parse(text)
		if err != nil {
			return nil, err
		}
		plan = append(plan, rule)
	}
	return plan, nil
}

func parse(text string) (Rule, error) {
	r := Rule{Text: text, Share: 1}
	body, times, timed := strings.Cut(text, "@")
	name, value, _ := strings.Cut(body, "=")
	r.Kind = name
	at := slices.IndexFunc(Words(), func(w Word) bool { return w.Name == name })
	if at < 0 {
		var names []string
		for _, w := range Words() {
			names = append(names, w.Name)
		}
		return r, fmt.Errorf(
			"rule %q: no rule is called %q: use one of %s",
			text,
			name,
			strings.Join(names, ", "),
		)
	}
	word := Words()[at]
	err := r.value(value)
	if err == nil && timed {
		err = r.times(times)
	}
	if err != nil {
		return r, fmt.Errorf(
			"rule %q: %w; write %s=%s, such as %s",
			text,
			err,
			word.Name,
			word.Form,
			word.Example,
		)
	}
	return r, nil
}

// value reads what stands behind the rule's name.
func (r *Rule) value(value string) (err error) {
	left, right, two := strings.Cut(value, ":")
	switch r.Kind {
	case Drop:
		share := value
		if two {
			share = right
			err = r.event(left)
		}
		r.Methods = groups["events"]
		if err == nil {
			r.Share, err = share01(share)
		}
	case Delay:
		calls := "all"
		duration := value
		if two {
			calls = left
			duration = right
		}
		r.Methods, err = callsOf(calls)
		if err == nil {
			r.For, err = positive(duration)
		}
	case Stall:
		if value == "" {
			value = "events"
		}
		r.Methods, err = callsOf(value)
	case Cut:
		r.For, err = positive(value)
	case Hang:
		if isID(value) {
			r.ID = value
			r.Methods = groups["all"]
			return nil
		}
		r.Methods, err = callsOf(value)
	case Refuse:
		r.Methods, err = callsOf(left)
		if err == nil && two {
			r.Share, err = share01(right)
		}
	}
	return err
}

// event reads a type of event, such as STOPPED or sandbox/STOPPED.
func (r *Rule) event(text string) error {
	r.Type = text
	item, kind, two := strings.Cut(text, "/")
	if two {
		r.Item = item
		r.Type = kind
	}
	if r.Item != "" && r.Item != "sandbox" && r.Item != "container" {
		return fmt.Errorf("%q is neither sandbox nor container", r.Item)
	}
	if !slices.Contains(eventTypes, r.Type) {
		return fmt.Errorf("%q is no type of event: use %s", r.Type, strings.Join(eventTypes, ", "))
	}
	return nil
}

// times reads FROM or FROM-TO.
func (r *Rule) times(text string) (err error) {
	from, to, two := strings.Cut(text, "-")
	r.From, err = time.ParseDuration(from)
	if err == nil && two {
		r.To, err = time.ParseDuration(to)
	}
	if err != nil || r.From < 0 || two && r.To <= r.From {
		return fmt.Errorf("@%s is no time since the begin: write @10s or @10s-20s", text)
	}
	return nil
}

// callsOf returns the methods of a group or a method.
func callsOf(text string) ([]string, error) {
	if list, ok := groups[text]; ok {
		return list, nil
	}
	if slices.Contains(methods, text) {
		return []string{text}, nil
	}
	return nil, fmt.Errorf("%q names no calls: use events, lists, statuses, all, or a method of the CRI", text)
}

func share01(text string) (float64, error) {
	share, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(share) || share <= 0 || share > 1 {
		return 0, fmt.Errorf("%q is no share: use a number above 0 and at most 1", text)
	}
	return share, nil
}

func positive(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is no duration above 0", text)
	}
	return d, nil
}

// isID reports whether a text is the begin of an ID as runtimes make them.
func isID(text string) bool {
	const digits = 8
	return len(text) >= digits && len(text) <= 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// refusal is the status of refused calls.
const refusal = codes.Unavailable

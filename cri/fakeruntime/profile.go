// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// EventSupport is a runtime's answer to GetContainerEvents.
type EventSupport uint8

const (
	// EventsOn: the stream stays open and carries events.
	EventsOn EventSupport = iota
	// EventsOff: the call ends at once without an error, so the client sees io.EOF (CRI-O with
	// enable_pod_events=false).
	EventsOff
	// EventsUnimplemented: the first Recv of the client fails with codes.Unimplemented.
	EventsUnimplemented
)

// Delivery says how events travel from the runtime to its subscribers.
type Delivery uint8

const (
	// DeliverBroadcast gives every subscriber its own channel of Profile.Slots events and waits for
	// a full channel: an idle subscriber blocks the runtime's CreateContainer and RemoveContainer,
	// and starves the other subscribers. Without a subscriber, events are kept for
	// Profile.BacklogAge and all go to the next subscriber (containerd ≥ 2.0).
	DeliverBroadcast Delivery = iota
	// DeliverSequential holds Profile.Queue events in a channel, drops the newest when full, and
	// hands each event to every subscriber in turn before taking the next. Events without a
	// subscriber vanish, except before the very first subscriber (CRI-O).
	DeliverSequential
	// DeliverCompete holds Profile.Queue events in a channel and drops the newest when full; each
	// event goes to a single subscriber (containerd 1.7).
	DeliverCompete
)

// UserStyle is the form of ContainerStatus.user.
type UserStyle uint8

const (
	// UserUntold: nothing.
	UserUntold UserStyle = iota
	// UserSortedGroups: user and group, and as supplemental groups the group and the requested
	// groups, sorted, each once (containerd).
	UserSortedGroups
	// UserGroupFirst: the same, with the group first and the others in the order in which they were
	// asked for (CRI-O).
	UserGroupFirst
)

// A Profile is the behaviour of a family of runtimes, as plain data. The zero Profile is not
// usable; take a profile from [ProfileByName] and change it for a test. A zero [Config] uses
// containerd-2.
type Profile struct {
	// Name is the profile's name, as in [ProfileByName].
	Name string
	// RuntimeName and RuntimeVersion are in the answer to Version.
	RuntimeName, RuntimeVersion string

	// Events says whether the runtime has an event stream at all.
	Events EventSupport
	// Delivery is how events reach subscribers.
	Delivery Delivery
	// Slots is the capacity of a subscriber's channel, for DeliverBroadcast.
	Slots int
	// Queue is the capacity of the shared channel, for DeliverSequential and DeliverCompete.
	Queue int
	// BacklogAge is how long an event waits for a first subscriber, for DeliverBroadcast. Of a backlog
	// of more than 256 MiB the oldest events go sooner.
	BacklogAge time.Duration

	// SandboxCreated and SandboxDeleted say whether these two events of a sandbox are sent; STARTED
	// always is, and STOPPED but for SilentCascade.
	SandboxCreated, SandboxDeleted bool
	// DeletedAlone: the DELETED event of a sandbox carries no sandbox status.
	DeletedAlone bool
	// SilentCascade: containers removed along with their sandbox by RemovePodSandbox get no DELETED
	// event, and a sandbox still ready no STOPPED.
	SilentCascade bool
	// ExitLag is the delay between a container's end and its visible exit: finished_at is the end;
	// lists, statuses and STOPPED are later. The direct methods, which end a container at the
	// caller's moment, date finished_at back instead.
	ExitLag time.Duration
	// PayloadByUID: an event carries the containers with the label io.kubernetes.pod.uid of its pod,
	// so all attempts; otherwise those of its sandbox ID.
	PayloadByUID bool
	// NewestFirst: the newest container comes first in the payload of an event, otherwise the oldest
	// (such real runtimes have no order).
	NewestFirst bool
	// PayloadAllOrNothing: an event with an unreadable payload is not sent; otherwise it is sent
	// with the part nil.
	PayloadAllOrNothing bool
	// DeleteLag is the time between a sandbox's DELETED event and its end in the store: until then
	// lists still show it.
	DeleteLag time.Duration

	// StatusContainers: PodSandboxStatus fills containers_statuses. StatusStamp: its timestamp is the
	// wall clock before the statuses are read; otherwise 0.
	StatusContainers bool
	StatusStamp      bool
	// StreamBatch is the number of items in a message of the streaming lists; 0 makes them
	// Unimplemented.
	StreamBatch int
	// ShortIDs: a unique prefix of an ID stands for it, in calls and in filters.
	ShortIDs bool

	// GracefulStops: stopping or removing a running container or a pod sends SIGTERM whatever the
	// timeout; otherwise a kill, unless StopContainer gives time.
	GracefulStops bool
	// StopsUnborn: removing a container without a start ends it first, with code 2 and a STOPPED
	// event.
	StopsUnborn bool
	// WantsUserImage: CreateContainer fails without image.user_specified_image, needed by a runtime
	// that checks signatures.
	WantsUserImage bool
	// CreateFails: a missing command fails in CreateContainer, which leaves nothing; otherwise in
	// StartContainer.
	CreateFails bool
	// NamesReturned: a name in use is no error: RunPodSandbox and CreateContainer answer with its
	// holder. Otherwise they fail with NameInUse.
	NamesReturned bool
	// NoImage is the code for a container of an absent image. 0: NotFound.
	NoImage codes.Code
	// Features are in Status, and User is the form of a container's user in ContainerStatus.
	Features Features
	User     UserStyle
	// NameInUse is the code for a name in use, NoSandbox for a container in an absent sandbox,
	// StoppedSandbox for a container in an unready sandbox. 0, which is no failure:
	// FailedPrecondition, NotFound and Unknown.
	NameInUse, NoSandbox, StoppedSandbox codes.Code
	// ContentType is the only accepted content type of requests, to the letter. Another one gets the
	// answer of a broken connection, as at CRI-O, which shares its socket between protocols by this.
	// Empty: all types known to gRPC.
	ContentType string
}

// Features are the runtime's features in Status.
type Features struct {
	// Handlers: Status lists handlers, the default handler and runc, each with the next two.
	Handlers, RecursiveReadOnlyMounts, UserNamespaces bool
	// These two are the runtime's own.
	SupplementalGroupsPolicy, UserNamespacesHostNetwork bool
}

// DefaultProfile is the name of the profile of a zero [Config].
const DefaultProfile = "containerd-2"

// The delay until real runtimes show a container's end: 20 to 265 ms, once 560, and 20 to 140 ms
// were measured.
const (
	containerdExitLag = 100 * time.Millisecond
	crioExitLag       = 30 * time.Millisecond
)

// featuresOf2025 are those of containerd 2.0 to 2.2 and of CRI-O.
var featuresOf2025 = Features{
	Handlers:                 true,
	RecursiveReadOnlyMounts:  true,
	UserNamespaces:           true,
	SupplementalGroupsPolicy: true,
}

var profiles = []Profile{
	{
		Name: "containerd-2", RuntimeName: "containerd", RuntimeVersion: "v2.4.2",
		Delivery: DeliverBroadcast, Slots: 100, BacklogAge: 5 * time.Minute,
		SandboxCreated: true, SandboxDeleted: true, DeleteLag: time.Millisecond, ExitLag: containerdExitLag,
		StreamBatch: 5000, ShortIDs: true, User: UserSortedGroups,
		Features: Features{
			Handlers: true, RecursiveReadOnlyMounts: true, UserNamespaces: true,
			SupplementalGroupsPolicy: true, UserNamespacesHostNetwork: true,
		},
	},
	{
		Name: "containerd-2.0", RuntimeName: "containerd", RuntimeVersion: "v2.0.2",
		Delivery: DeliverBroadcast, Slots: 100, BacklogAge: 5 * time.Minute,
		SandboxCreated: true, SandboxDeleted: true, DeleteLag: time.Millisecond, ExitLag: containerdExitLag,
		StatusStamp: true, ShortIDs: true, User: UserSortedGroups, Features: featuresOf2025,
	},
	{
		Name:           "containerd-1.7",
		RuntimeName:    "containerd",
		RuntimeVersion: "v1.7.35",
		Delivery:       DeliverCompete,
		Queue:          1000,
		SandboxCreated: true,
		SandboxDeleted: true,
		DeletedAlone:   true,
		DeleteLag:      time.Millisecond,
		ExitLag:        containerdExitLag,
		ShortIDs:       true,
		NameInUse:      codes.Unknown,
		StoppedSandbox: codes.NotFound,
	},
	{
		Name:                "crio",
		RuntimeName:         "cri-o",
		RuntimeVersion:      "1.36.3",
		Delivery:            DeliverSequential,
		Queue:               1000,
		SilentCascade:       true,
		PayloadByUID:        true,
		NewestFirst:         true,
		PayloadAllOrNothing: true,
		ExitLag:             crioExitLag,
		StatusContainers:    true,
		StatusStamp:         true,
		StreamBatch:         3000,
		ShortIDs:            true,
		GracefulStops:       true,
		StopsUnborn:         true,
		CreateFails:         true,
		NamesReturned:       true,
		NoSandbox:           codes.Unknown,
		WantsUserImage:      true,
		ContentType:         "application/grpc",
		NoImage:             codes.Unknown,
		User:                UserGroupFirst,
		Features:            featuresOf2025,
	},
	{
		Name:           "crio-disabled",
		RuntimeName:    "cri-o",
		RuntimeVersion: "1.36.3",
		Events:         EventsOff,
		SilentCascade:  true,
		ExitLag:        crioExitLag,
		StreamBatch:    3000,
		ShortIDs:       true,
		GracefulStops:  true,
		StopsUnborn:    true,
		CreateFails:    true,
		NamesReturned:  true,
		NoSandbox:      codes.Unknown,
		WantsUserImage: true,
		ContentType:    "application/grpc",
		NoImage:        codes.Unknown,
		User:           UserGroupFirst,
		Features:       featuresOf2025,
	},
	{
		Name: "no-events", RuntimeName: "virtual", RuntimeVersion: "v1.0.0",
		Events: EventsUnimplemented,
	},
}

// Profiles returns the known profiles, the default profile first. The caller owns the slice.
func Profiles() []Profile { return slices.Clone(profiles) }

// ProfileNames returns the names of [Profiles], in their order.
func ProfileNames() []string {
	names := make([]string, len(profiles))
	for i, p := range profiles {
		names[i] = p.Name
	}
	return names
}

// ProfileByName returns the named profile. An unknown name is an error with the known names.
func ProfileByName(name string) (Profile, error) {
	for _, p := range profiles {
		if p.Name == name {
			return p, nil
		}
	}
	return Profile{}, fmt.Errorf(
		"fakeruntime: unknown profile %q: use one of %s",
		name,
		strings.Join(ProfileNames(), ", "),
	)
}

// validate reports every unusable field.
func (p Profile) validate() error {
	switch {
	case p.Name == "":
		return fmt.Errorf("fakeruntime: Config.Profile has no Name: take it from ProfileByName")
	case p.RuntimeName == "" || p.RuntimeVersion == "":
		return fmt.Errorf(
			"fakeruntime: profile %q has no RuntimeName or RuntimeVersion: clients refuse an empty Version reply",
			p.Name,
		)
	case p.Events > EventsUnimplemented:
		return fmt.Errorf("fakeruntime: profile %q: unknown Events %d", p.Name, p.Events)
	case p.Delivery > DeliverCompete:
		return fmt.Errorf("fakeruntime: profile %q: unknown Delivery %d", p.Name, p.Delivery)
	case p.User > UserGroupFirst:
		return fmt.Errorf("fakeruntime: profile %q: unknown User %d", p.Name, p.User)
	case p.Events == EventsOn && p.Delivery == DeliverBroadcast && p.Slots < 1:
		return fmt.Errorf(
			"fakeruntime: profile %q: Slots is %d: a broadcasting runtime needs at least 1",
			p.Name,
			p.Slots,
		)
	case p.Events == EventsOn && p.Delivery != DeliverBroadcast && p.Queue < 1:
		return fmt.Errorf("fakeruntime: profile %q: Queue is %d: it needs at least 1", p.Name, p.Queue)
	case p.StreamBatch < 0 || p.BacklogAge < 0 || p.DeleteLag < 0 || p.ExitLag < 0:
		return fmt.Errorf(
			"fakeruntime: profile %q: StreamBatch, BacklogAge, DeleteLag and ExitLag cannot be negative",
			p.Name,
		)
	}
	return nil
}

# SPDX-FileCopyrightText: The Evented PLEG Authors
# SPDX-License-Identifier: Apache-2.0

# Everything here can be run by hand too; the targets only save typing. `make` explains itself.

GO        ?= go
BUILD     := $(CURDIR)/build
SEEDS     ?= 20000
FUZZTIME  ?= 10s
FUZZ       = .ci/fuzz

.DEFAULT_GOAL := help
.PHONY: help
help: ## show this
	@awk 'BEGIN {FS = ":.*## "; print "usage: make TARGET\n"} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2} /^#: / {print "\n" substr($$0, 4)}' $(MAKEFILE_LIST)

#: the main job
.PHONY: run
run: ## run pleg-bench on the fake runtime, about 20 s
	$(GO) run ./cmd/pleg-bench

.PHONY: agent
agent: ## run pleg-agent on the fake runtime: the Events of containers that end in many ways
	$(GO) build -o $(BUILD)/pleg-agent ./cmd/pleg-agent
	$(BUILD)/pleg-agent --fake

.PHONY: build
build: ## build pleg-bench and pleg-agent into build/
	$(GO) build -ldflags "-X main.commit=$$(git describe --always --dirty --abbrev=12)" -o $(BUILD)/ ./cmd/pleg-bench ./cmd/pleg-agent

.PHONY: release
release: ## a release of the last commit in build/release, and tags of every module: VERSION=v0.1.0 TARGETS="linux/amd64 …" MINISIGN_KEY=file (.ci/release tries it in a clone)
	tools/release "$(VERSION)" $(BUILD)/release $(TARGETS)

#: tests
.PHONY: test
test: ## all tests of the workspace, with the race detector
	$(GO) test -race -shuffle=on work

.PHONY: tier1
tier1: ## what must hold of every change, without root: .ci/tier1
	.ci/tier1

.PHONY: lint
lint: ## vet, staticcheck, gofmt, go fix, tidy and generate diffs, shellcheck, actionlint, deploy/, licences, known vulnerabilities
	.ci/lint

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each (default 10s)
	FUZZTIME=$(FUZZTIME) $(FUZZ)

.PHONY: oldest
oldest: ## test the libraries at the oldest versions of what they need
	.ci/oldest

.PHONY: consumers
consumers: ## add our modules to pristine programs, which must keep every version that they have
	.ci/consumers

.PHONY: patches
patches: ## apply the adapters' patches to the releases of Kubernetes that they are for, and to others
	.ci/patches

.PHONY: tidy
tidy: ## go mod tidy in every module
	.ci/tidy

.PHONY: simulate
simulate: ## search SEEDS random histories (default 20000) for one in which the PLEG is wrong
	$(GO) test ./internal/simulate -count=1 -timeout=0 -v -run '^TestSimulate' -args -seeds=$(SEEDS) -fake-seeds=$$(( $(SEEDS) / 50 ))

.PHONY: prove
prove: ## drive the core through every state of the scopes that close (minutes; SCOPES=CWqs for some)
	$(GO) test ./pleg -count=1 -timeout=0 -v -run '^TestProve' -args -prove -scopes=$(SCOPES)

.PHONY: mutate
mutate: ## apply deliberate faults to the packages that internal/mutate names one by one; each must be caught
	$(GO) run ./internal/mutate

.PHONY: mutate-scripts
mutate-scripts: ## play each script against the deliberate faults that it names; it must convict them
	$(GO) run ./internal/mutate -scripts

.PHONY: pages
pages: ## look at the pages of run, stress, watch and fleet in a real browser, on a phone and a desk; pictures in build/pages
	.ci/pages $(BUILD)/pages

#: real components, as root on Linux; built once from the module registry into build/
RUN ?= $(NODE_E2E_RUN)

.PHONY: test-node
test-node: ## disruption tests against a real runtime (RUNTIME=crio, a list, or all; NODE_E2E_BOUNDED=1: the short form; RUN='^0[36]': some)
	$(GO) test -tags e2e -c -o $(BUILD)/node/node-e2e ./test/node/suite
	mkdir -p $(BUILD)/node/results
	$(GO) tool gotestsum --format testname --junitfile $(BUILD)/node/junit.xml --raw-command -- $(GO) tool test2json -t -p node-e2e \
		$(BUILD)/node/node-e2e -test.v=test2json $(if $(RUN),-test.run '//($(RUN))') $(if $(RUNTIME),-runtime $(RUNTIME))
	cat $(BUILD)/node/results/figures.md
	$(GO) test -count=1 -tags e2e ./test/node/unshare ./test/kubelet/machine

.PHONY: runtime
runtime: ## a private runtime with our workload image, for pleg-bench --endpoint; Ctrl-C or kill ends it (NAME=crio or another: go run ./test/node/cmd/runtime --list)
	$(GO) build -o $(BUILD)/node/runtime ./test/node/cmd/runtime
	$(BUILD)/node/runtime $(NAME)

.PHONY: containerd
containerd: NAME = containerd-2.4
containerd: runtime ## the same as make runtime NAME=containerd-2.4

KUBE_VERSION ?= v1.36.3

.PHONY: test-apiserver
test-apiserver: ## the Event recorder against etcd and kube-apiserver: KUBE_VERSION, v1.36.3 or v1.37.1
	test/apiserver/build $(KUBE_VERSION)
	cd test/apiserver && KUBE_VERSION=$(KUBE_VERSION) $(GO) test -count=1 -timeout=20m ./...

.PHONY: show-events
show-events: ## docs/events/shown.md: what a real API server holds of ours and of client-go's (15 min)
	test/apiserver/build
	cd test/apiserver && $(GO) test -count=1 -timeout=40m -run TestShow . -args -show

.PHONY: test-controllerruntime
test-controllerruntime: ## the recorder in controller-runtime's manager 0.22 to 0.25
	test/controllerruntime/run -count=1

.PHONY: test-critest
test-critest: ## cri-tools' validation suite against the fake runtime (a minute, half of it compiling)
	cd test/critest && GOWORK=off $(GO) test -count=1 -v .

KUBELETS ?= 1.36.3 1.37.1

.PHONY: test-embed
test-embed: ## the installed kubelet adapter in trees of Kubernetes (KUBELETS), by the trees' own scripts and tests
	test/kubelet/build -t $(KUBELETS)
	.ci/kubelet-tree $(KUBELETS)

.PHONY: kubelet
kubelet: ## build the stock and the patched kubelets of KUBELETS (minutes; KUBELET_BUILD=-e: the patched ones only)
	test/kubelet/build $(KUBELET_BUILD) $(KUBELETS)

.PHONY: test-kubelet
test-kubelet: ## real kubelets with this PLEG in them, on the fake runtime, on containerd, on CRI-O, with an API server (needs make kubelet; KUBELET_E2E_BOUNDED=1: the short form)
	$(GO) build -o $(BUILD)/kubelet/kubelet-e2e ./test/kubelet/cmd/kubelet-e2e
	$(BUILD)/kubelet/kubelet-e2e scenarios -bounded resting-$(firstword $(KUBELETS)) & resting=$$!; \
	$(BUILD)/kubelet/kubelet-e2e scenarios $(KUBELETS:%=evented-%); evented=$$?; wait $$resting && exit $$evented
	$(BUILD)/kubelet/kubelet-e2e scenarios -runtime containerd -pods 20 evented-$(lastword $(KUBELETS)) & containerd=$$!; \
	$(BUILD)/kubelet/kubelet-e2e scenarios -runtime crio -pods 20 evented-$(firstword $(KUBELETS)); crio=$$?; wait $$containerd && exit $$crio
	test/apiserver/build v$(firstword $(KUBELETS))
	$(BUILD)/kubelet/kubelet-e2e scenarios -runtime containerd -pods 20 -api $(BUILD)/apiserver evented-$(firstword $(KUBELETS))

.PHONY: test-stock
test-stock: ## one unmodified kubelet on the fake runtime: pods start, end, crash, are probed and stopped
	test/kubelet/build $(lastword $(KUBELETS))
	$(GO) build -o $(BUILD)/kubelet/kubelet-e2e ./test/kubelet/cmd/kubelet-e2e
	$(BUILD)/kubelet/kubelet-e2e scenarios -bounded -only pods-start,complete,crash-loop,probes-and-hooks,pods-stop stock-$(lastword $(KUBELETS))

VALUE ?= stock-1.36.3 evented-1.36.3

.PHONY: test-value
test-value: ## the table of what the PLEG is worth, beside the first of VALUE: CPU of kubelet, daemon and shims, lists, latency; each kubelet in a run of its own, by turns (as root, hours; VALUE_FLAGS="-runtimes crio -pods 30 -rounds 1")
	test/kubelet/build $(lastword $(subst -, ,$(firstword $(VALUE))))
	$(GO) build -o $(BUILD)/kubelet/kubelet-e2e ./test/kubelet/cmd/kubelet-e2e
	$(BUILD)/kubelet/kubelet-e2e value $(VALUE_FLAGS) $(VALUE)

UPSTREAM ?= stock-1.36.3 evented-1.36.3

.PHONY: test-upstream
test-upstream: ## upstream's own node e2e tests on both kubelets, spec by spec (RUNTIME=crio; UPSTREAM_SPECS=bounded or rest; UPSTREAM=...: other columns, such as gate-1.36.3)
	test/kubelet/build -s $(lastword $(subst -, ,$(firstword $(UPSTREAM))))
	$(GO) build -o $(BUILD)/kubelet/kubelet-e2e ./test/kubelet/cmd/kubelet-e2e
	$(BUILD)/kubelet/kubelet-e2e upstream $(if $(UPSTREAM_SPECS),-specs $(UPSTREAM_SPECS)) $(if $(RUNTIME),-runtime $(RUNTIME)) $(UPSTREAM)

.PHONY: test-fleet
test-fleet: ## deploy/ and pleg-bench fleet on a cluster of three nodes on this machine, with Prometheus: KUBE_VERSION, v1.36.3 or v1.37.1
	$(GO) test -tags e2e -c -o $(BUILD)/fleet/fleet.test ./test/fleet
	cd test/fleet && KUBE_VERSION=$(KUBE_VERSION) $(BUILD)/fleet/fleet.test -test.v -test.run '^TestFleet$$'

.PHONY: test-fleet-agent
test-fleet-agent: ## deploy/agent alone on the same cluster, with an API server that is away for OUTAGE (5m); build/fleet/why has what kubectl shows
	$(GO) test -tags e2e -c -o $(BUILD)/fleet/fleet.test ./test/fleet
	cd test/fleet && KUBE_VERSION=$(KUBE_VERSION) $(BUILD)/fleet/fleet.test -test.v -test.run '^TestAgent$$' -outage $(or $(OUTAGE),5m)

.PHONY: test-fleet-trouble
test-fleet-trouble: ## the alerts of deploy/ on the same cluster: a node without a watch, lists that hang, a denied socket
	$(GO) test -tags e2e -c -o $(BUILD)/fleet/fleet.test ./test/fleet
	cd test/fleet && KUBE_VERSION=$(KUBE_VERSION) $(BUILD)/fleet/fleet.test -test.v -test.run '^TestTrouble$$'

.PHONY: test-stored
test-stored: ## the time from the end of a container to its stored Event, on real runtimes beside a kube-apiserver (RUNTIME=containerd-2.4,crio: some)
	$(GO) test -tags e2e -c -o $(BUILD)/fleet/fleet.test ./test/fleet
	cd test/fleet && KUBE_VERSION=$(KUBE_VERSION) $(BUILD)/fleet/fleet.test -test.v -test.run '^TestStored$$' -measured $(or $(RUNTIME),all)

#: performance
.PHONY: bench
bench: ## package benchmarks, and ours beside the floor: lines for benchstat
	$(GO) test -run '^$$' -bench . -benchtime 300ms ./pleg ./cache ./cri
	test/peer/run -a floor,generated,ours

.PHONY: bench-peer
bench-peer: ## this PLEG beside the kubelet's own, both versions; builds them first (minutes)
	mkdir -p $(BUILD)
	test/peer/run >$(BUILD)/peer.bench
	$(GO) tool benchstat -row .fullname -col /agent $(BUILD)/peer.bench

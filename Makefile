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
run: ## run pleg-bench on the fake runtime, about 15 s
	$(GO) run ./cmd/pleg-bench

.PHONY: build
build: ## build pleg-bench into build/
	$(GO) build -o $(BUILD)/pleg-bench ./cmd/pleg-bench

#: tests
.PHONY: test
test: ## all tests of the main module, with the race detector
	$(GO) test -race -shuffle=on ./...

.PHONY: lint
lint: ## vet, staticcheck, gofmt, go fix, tidy and generate diffs, known vulnerabilities
	.ci/lint

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each (default 10s)
	FUZZTIME=$(FUZZTIME) $(FUZZ)

.PHONY: k8s-previous
k8s-previous: ## compile everything against the previous Kubernetes minor
	.ci/k8s-previous

.PHONY: simulate
simulate: ## search SEEDS random histories (default 20000) for one in which the PLEG is wrong
	$(GO) test ./internal/simulate -count=1 -timeout=0 -v -run '^TestSimulate' -args -seeds=$(SEEDS) -fake-seeds=$$(( $(SEEDS) / 50 ))

.PHONY: mutate
mutate: ## apply deliberate faults to pleg and cache one by one; each must be caught
	$(GO) run ./internal/mutate

#: real components, as root on Linux; built once from the module registry into build/
.PHONY: test-node
test-node: ## disruption tests against containerd and runc (NODE_E2E_BOUNDED=1: the short form)
	$(GO) build -o $(BUILD)/node/node-e2e ./test/node/cmd/node-e2e
	$(BUILD)/node/node-e2e

.PHONY: containerd
containerd: ## a private containerd with our workload image, for pleg-bench --endpoint; Ctrl-C ends it
	$(GO) run ./test/node/cmd/containerd

.PHONY: test-apiserver
test-apiserver: ## the Event recorder against etcd and kube-apiserver
	test/apiserver/build
	cd test/apiserver && $(GO) test -count=1 -timeout=20m ./...

.PHONY: test-embed
test-embed: ## the kubelet adapters against the kubelets' own types
	cd embed/kubelet136 && $(GO) test -race -count=1 ./...
	cd embed/kubelet137 && $(GO) test -race -count=1 ./...

.PHONY: kubelet
kubelet: ## build the stock and the patched kubelets of both versions (minutes; KUBELET_BUILD=-evented: the patched ones only)
	$(GO) run ./test/kubelet/cmd/kubelet-build -out $(BUILD)/kubelet $(KUBELET_BUILD)

.PHONY: test-kubelet
test-kubelet: ## real kubelets with this PLEG in them, on the fake runtime, on containerd, with an API server (needs make kubelet; KUBELET_E2E_BOUNDED=1: the short form)
	$(GO) build -o $(BUILD)/kubelet/kubelet-e2e ./test/kubelet/cmd/kubelet-e2e
	$(BUILD)/kubelet/kubelet-e2e scenarios
	$(BUILD)/kubelet/kubelet-e2e scenarios -containerd -pods 20 evented-1.37.1
	test/apiserver/build
	$(BUILD)/kubelet/kubelet-e2e scenarios -containerd -pods 20 -api $(BUILD)/apiserver evented-1.36.3

#: performance
.PHONY: bench
bench: ## package benchmarks, and ours beside the floor: lines for benchstat
	$(GO) test -run '^$$' -bench . -benchtime 300ms ./pleg ./cache ./cri
	cd test/peer && $(GO) run . -agents floor,generated,ours -rows relist,streaming,changed,intake,first,newer,latency,memory -bench -

.PHONY: bench-peer
bench-peer: ## this PLEG beside the kubelet's own, both versions; builds them first (minutes)
	mkdir -p $(BUILD)
	cd test/peer && $(GO) run . -kubelets $(BUILD) -bench $(BUILD)/peer.bench -markdown $(BUILD)/peer.md

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

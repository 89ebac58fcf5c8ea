// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllerruntime records the Events of controller-runtime's manager by package events,
// with four minor versions of controller-runtime, each with its own Kubernetes version: see ./run.
// The package compiles the code of docs/events about controller-runtime.
package controllerruntime

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllerruntime records the Events of controller-runtime's manager by package events, with four minor
// versions of controller-runtime, each with the Kubernetes that it is made for: see ./run. It is what docs/events says of
// controller-runtime, compiled.
package controllerruntime

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package picture draws SVG pictures of measurements, with gonum.org/v1/plot.
//
// # Model
//
// A [Figure] is a plot in the style of the house with a heading; its Write makes an SVG. Durations stand
// on logarithmic axes, whose ticks are [Durations]. [Latency] is the picture of a run.
//
// # Concurrency
//
// A figure belongs to one goroutine. Nothing is shared.
//
// # Errors
//
// What cannot stand on a logarithmic axis is left out, and the picture says how much that was. Only
// writing fails.
package picture

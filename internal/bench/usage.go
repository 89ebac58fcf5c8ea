// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

// Usage is the resource usage of a process.
type Usage struct {
	CPUSeconds float64
	// MaxRSS is the largest resident size so far, in bytes.
	MaxRSS int64
}

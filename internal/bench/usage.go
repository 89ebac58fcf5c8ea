// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

// Usage is what a process has used.
type Usage struct {
	CPUSeconds float64
	// MaxRSS is the largest resident size so far, in bytes.
	MaxRSS int64
}

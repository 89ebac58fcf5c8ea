// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package environ reads the variables of the environment that choose what a suite does.
package environ

import (
	"fmt"
	"os"
	"strconv"
)

// Switch reports whether a variable switches something on: 1, true and the like do; 0, false, an
// empty and a missing one do not. All else is an error that names it.
func Switch(variable string) (bool, error) {
	value := os.Getenv(variable)
	if value == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("%s=%s: write 1 or 0", variable, value)
	}
	return on, nil
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// checkOutput checks the value of --output.
func checkOutput(output string) error {
	if output != "text" && output != "json" {
		return usageError{fmt.Errorf("--output %s: use text or json", output)}
	}
	return nil
}

// writeResult writes a result as --output says.
func writeResult(w io.Writer, output string, result any, text func(io.Writer) error) error {
	var err error
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(result)
	} else {
		err = text(w)
	}
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

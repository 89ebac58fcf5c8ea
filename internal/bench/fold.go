// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import "strings"

// Columns is how wide a line for people may be.
const Columns = 80

// Fold breaks a line at spaces to fit 80 columns, and indents the continuation.
func Fold(s string, indent int) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.SplitAfter(s, " ") {
		if long := len([]rune(strings.TrimRight(word, " "))); i > 0 && column+long > Columns && column > indent {
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		}
		b.WriteString(word)
		column += len([]rune(word))
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

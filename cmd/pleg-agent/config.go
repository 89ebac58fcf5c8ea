// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/evented-pleg/evented-pleg/internal/deadmount"
)

// readConfig sets the flags found in the file of --config but not on the command line. Keys are the
// names of flags; a value is a value of the flag, or a list of values. A flag gets the text as
// written in the file: 20240601, 1e3, 0123, 0x1f and no may be the names of namespaces.
func (o *options) readConfig(flags *pflag.FlagSet) error {
	if o.config == "" {
		return nil
	}
	data, err := readFile(o.config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	return o.setFlags(flags, data)
}

// readFile reads a file, unless it is on a mount that does not answer.
func readFile(path string) ([]byte, error) {
	if err := deadmount.Check(path); err != nil {
		return nil, err
	}
	var data []byte // the call's alone until it has returned
	err := deadmount.Do(deadmount.FilesIn, path, func() (err error) {
		data, err = os.ReadFile(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// setFlags is readConfig for the content of the file.
func (o *options) setFlags(flags *pflag.FlagSet, data []byte) error {
	var values map[string]yaml.Node
	if err := yaml.Unmarshal(data, &values); err != nil {
		inLine := strings.Join(strings.Fields(err.Error()), " ") // the library writes a line for each fault
		return fmt.Errorf("--config %s: %s", o.config, inLine)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		flag := flags.Lookup(name)
		if flag == nil || name == "config" || name == "help" || name == "version" {
			return fmt.Errorf("--config %s: the key %q is no flag: see --help for their names", o.config, name)
		}
		if flag.Changed {
			continue
		}
		node := values[name]
		value, err := plain(&node)
		if err == nil {
			err = flags.Set(name, value)
		}
		if err != nil {
			return fmt.Errorf("--config %s: %s: %w", o.config, name, err)
		}
	}
	return nil
}

// plain returns a value of the file in the form of a flag's value: a list becomes text with
// commas.
func plain(node *yaml.Node) (string, error) {
	node = target(node)
	if node.Kind != yaml.SequenceNode {
		return text(node)
	}
	parts := make([]string, len(node.Content))
	for i, part := range node.Content {
		var err error
		parts[i], err = text(target(part))
		if err != nil {
			return "", err
		}
	}
	return strings.Join(parts, ","), nil
}

// target returns the target of an alias, or the node itself.
func target(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// text returns a single value; a list is an error.
func text(node *yaml.Node) (string, error) {
	is := "nothing"
	switch {
	case node.Kind == yaml.MappingNode:
		is = "a map"
	case node.Kind == yaml.SequenceNode:
		is = "a list in a list"
	case node.Kind == yaml.ScalarNode && node.ShortTag() != "!!null":
		return node.Value, nil
	}
	return "", fmt.Errorf("the value is %s: use a text, a number, true or false, or a list of texts", is)
}

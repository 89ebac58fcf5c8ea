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
	"sigs.k8s.io/yaml"
)

// readConfig sets the flags that are in the file of --config and not on the command line. Keys are
// the names of flags; a value is what the flag takes, or a list of it.
func (o *options) readConfig(flags *pflag.FlagSet) error {
	if o.config == "" {
		return nil
	}
	data, err := os.ReadFile(o.config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return fmt.Errorf("--config %s: %w", o.config, err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		flag := flags.Lookup(name)
		if flag == nil || name == "config" || name == "help" || name == "version" {
			return fmt.Errorf("--config %s: the key %q is no flag: see --help for their names", o.config, name)
		}
		if flag.Changed {
			continue
		}
		value, err := plain(values[name])
		if err == nil {
			err = flags.Set(name, value)
		}
		if err != nil {
			return fmt.Errorf("--config %s: %s: %w", o.config, name, err)
		}
	}
	return nil
}

// plain returns a value of the file as a flag takes it.
func plain(value any) (string, error) {
	switch v := value.(type) {
	case []any:
		parts := make([]string, len(v))
		for i, part := range v {
			text, err := plain(part)
			if err != nil {
				return "", err
			}
			parts[i] = text
		}
		return strings.Join(parts, ","), nil
	case map[string]any, nil:
		return "", fmt.Errorf("the value is %v: use a text, a number, true or false, or a list of texts", v)
	}
	return fmt.Sprint(value), nil
}

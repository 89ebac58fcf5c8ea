// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Choice selects the ends to report. The zero value chooses all ends of the default kinds. Other
// ends are counted, and never reported later.
type Choice struct {
	// Kinds are the kinds to report. Default [DefaultKinds].
	Kinds []Kind
	// Namespaces are the namespaces to report about; empty: all. ExceptNamespaces are never reported.
	Namespaces, ExceptNamespaces []string
	// Labels selects pods by their labels, in the syntax of kubectl's --selector: "app=db,tier!=test".
	// Empty: all.
	Labels string
}

// chooser is a checked Choice.
type chooser struct {
	Choice
	selector labels.Selector
}

// Validate returns errors for every unworkable field, as [New] does.
func (c Choice) Validate() error {
	_, err := c.checked()
	return err
}

// checked returns the choice with its defaults, and errors for every unworkable field.
func (c Choice) checked() (chooser, error) {
	var errs []error
	if len(c.Kinds) == 0 {
		c.Kinds = DefaultKinds()
	}
	for _, kind := range c.Kinds {
		if !slices.Contains(Kinds(), kind) {
			errs = append(errs, fmt.Errorf("Choice.Kinds: no kind of end is named %q: see Kinds", kind))
		}
	}
	errs = append(errs, named("Choice.Namespaces", c.Namespaces), named("Choice.ExceptNamespaces", c.ExceptNamespaces))
	for _, namespace := range c.Namespaces {
		if slices.Contains(c.ExceptNamespaces, namespace) {
			errs = append(errs, fmt.Errorf("Choice: the namespace %q is in Namespaces and in ExceptNamespaces: remove it from one", namespace))
		}
	}
	selector, err := labels.Parse(c.Labels)
	if err != nil {
		errs = append(errs, fmt.Errorf("Choice.Labels %q: %w", c.Labels, err))
	}
	return chooser{Choice: c, selector: selector}, errors.Join(errs...)
}

// named returns an error for the first of a field's namespaces that none can have as its name: it
// would never choose anything.
func named(field string, namespaces []string) error {
	for _, namespace := range namespaces {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			return fmt.Errorf("%s: no namespace is named %q: %s", field, printable(namespace, maxName), wrong[0])
		}
	}
	return nil
}

// chooses reports whether an end is to be reported.
func (c *chooser) chooses(e *End) bool {
	switch {
	case !slices.Contains(c.Kinds, e.Kind),
		len(c.Namespaces) > 0 && !slices.Contains(c.Namespaces, e.Pod.Namespace),
		slices.Contains(c.ExceptNamespaces, e.Pod.Namespace):
		return false
	}
	return c.selector.Empty() || c.selector.Matches(labels.Set(e.Labels))
}

// asked returns the labels that the selector asks for: all that the choice depends on.
func (c *chooser) asked(all map[string]string) map[string]string {
	var asked map[string]string
	requirements, _ := c.selector.Requirements() // a parsed selector can choose something
	for i := range requirements {
		key := requirements[i].Key()
		value, ok := all[key]
		if !ok {
			continue
		}
		if asked == nil {
			asked = make(map[string]string)
		}
		asked[key] = value
	}
	return asked
}

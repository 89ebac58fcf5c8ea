// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// A Code is a gRPC status code that reads and prints as its name, such as Unavailable.
type Code codes.Code

// String returns the name of the code.
func (c Code) String() string { return codes.Code(c).String() }

// parseCode takes a name in any case, with or without underscores, or a number.
func parseCode(s string) (Code, error) {
	plain := strings.ToLower(strings.ReplaceAll(s, "_", ""))
	if plain == "cancelled" {
		plain = "canceled"
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if plain == strings.ToLower(c.String()) || plain == strconv.Itoa(int(c)) {
			return Code(c), nil
		}
	}
	return 0, fmt.Errorf("%q is not the name of a gRPC error code: use one such as Unavailable or DeadlineExceeded", s)
}

// A Fault describes a field of [Faults], so that a command can print and sweep them.
type Fault struct {
	// Name is the name in text.
	Name string
	// Kind is "probability", "duration", "count" or "code".
	Kind string
	// Help is a line about the fault's effect.
	Help string
	// Example is a value that strikes often enough to be seen and rarely enough to get through;
	// empty for a field that tunes another.
	Example string

	field int // its index
}

// FaultList returns every fault, in the order of the fields of [Faults]. The caller owns the slice.
func FaultList() []Fault { return slices.Clone(faultList) }

// maxFaultCount bounds counts: a fault must not exhaust the machine's memory.
const maxFaultCount = 256 << 20

// faultList is read from the tags of the fields.
var faultList = func() (list []Fault) {
	kinds := map[reflect.Kind]string{
		reflect.Float64: "probability", reflect.Int64: "duration", reflect.Int: "count", reflect.Uint32: "code",
	}
	fields := reflect.TypeFor[Faults]()
	for i := range fields.NumField() {
		f := fields.Field(i)
		list = append(list, Fault{f.Tag.Get("fault"), kinds[f.Type.Kind()], f.Tag.Get("help"), f.Tag.Get("example"), i})
	}
	return list
}()

// of returns a pointer to the fault's field.
func (d Fault) of(f *Faults) any { return reflect.ValueOf(f).Elem().Field(d.field).Addr().Interface() }

// Set sets the named fault from its text form. A senseless name or value is an error, and changes
// nothing.
func (f *Faults) Set(name, value string) error {
	i := slices.IndexFunc(faultList, func(d Fault) bool { return d.Name == name })
	if i < 0 {
		var names []string
		for _, d := range faultList {
			names = append(names, d.Name)
		}
		return fmt.Errorf("fakeruntime: unknown fault %q: the known ones are %s", name, strings.Join(names, ", "))
	}
	next := *f
	var err error
	switch field := faultList[i].of(&next).(type) {
	case *float64:
		*field, err = strconv.ParseFloat(value, 64)
	case *time.Duration:
		*field, err = time.ParseDuration(value)
	case *int:
		*field, err = strconv.Atoi(value)
	case *Code:
		*field, err = parseCode(value)
	}
	if err == nil {
		err = faultList[i].check(&next)
	}
	if err != nil {
		return fmt.Errorf("fakeruntime: fault %s=%s: %w", name, value, err)
	}
	*f = next
	return nil
}

// check reports a value out of the fault's range.
func (d Fault) check(f *Faults) error {
	switch field := d.of(f).(type) {
	case *float64:
		if !(*field >= 0 && *field <= 1) {
			return fmt.Errorf("%v is not a probability: use 0 to 1", *field)
		}
	case *time.Duration:
		signed := d.Name == "clock-skew" || d.Name == "clock-step"
		if *field < 0 && !signed {
			return fmt.Errorf("%v is negative: only clock-skew and clock-step can be", *field)
		}
		if *field > math.MaxInt64/4 || *field < -math.MaxInt64/4 {
			return fmt.Errorf("%v is too long", *field)
		}
	case *int:
		if *field < 0 || *field > maxFaultCount {
			return fmt.Errorf("%d is not a count: use 0 to %d", *field, maxFaultCount)
		}
	case *Code:
		if codes.Code(*field) > codes.Unauthenticated {
			return fmt.Errorf("%d is not a gRPC code: use 1 to %d", *field, codes.Unauthenticated)
		}
	}
	return nil
}

// Validate reports every field with a senseless value, by name.
func (f Faults) Validate() error {
	var errs []error
	for _, d := range faultList {
		if err := d.check(&f); err != nil {
			errs = append(errs, fmt.Errorf("fakeruntime: fault %s: %w", d.Name, err))
		}
	}
	return errors.Join(errs...)
}

// ParseFaults reads faults of the form NAME=VALUE, such as "drop=0.05" or "delay-by=2s". A later
// value overrides an earlier value of the same name. All errors are returned, joined.
func ParseFaults(specs ...string) (Faults, error) {
	var f Faults
	var errs []error
	for _, s := range specs {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			errs = append(errs, fmt.Errorf("fakeruntime: fault %q has no value: write NAME=VALUE, such as drop=0.05", s))
			continue
		}
		if err := f.Set(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Faults{}, err
	}
	return f, nil
}

// Strings returns the nonzero faults as NAME=VALUE, in the order of [FaultList]; [ParseFaults]
// reads them back.
func (f Faults) Strings() []string {
	var out []string
	for _, d := range faultList {
		if v := reflect.ValueOf(f).Field(d.field); !v.IsZero() {
			out = append(out, fmt.Sprint(d.Name, "=", v))
		}
	}
	return out
}

// String joins [Faults.Strings] by spaces.
func (f Faults) String() string { return strings.Join(f.Strings(), " ") }

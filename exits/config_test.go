// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestConfigIsChecked: each unworkable field is named, with its value.
func TestConfigIsChecked(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "none")
	for _, test := range []struct {
		config Config[Pod]
		want   string
	}{
		{Config[Pod]{}, "Config.Generator is nil"},
		{Config[Pod]{Settle: -1}, "Config.Settle is -1ns"},
		{Config[Pod]{GiveUp: -1}, "Config.GiveUp is -1ns"},
		{Config[Pod]{Readers: -1}, "Config.Readers is -1"},
		{Config[Pod]{Sink: &Sink{}}, "Config.Sink and Unsent go together"},
		{Config[Pod]{NodeRate: Rate{PerSecond: math.Inf(1), Burst: 1}}, "Config.NodeRate is +Inf a second and 1 at once"},
		{Config[Pod]{NodeRate: Rate{PerSecond: math.NaN(), Burst: 1}}, "Config.NodeRate is NaN a second"},
		{Config[Pod]{NamespaceRate: Rate{PerSecond: 1}}, "Config.NamespaceRate is 1 a second and 0 at once"},
		{Config[Pod]{NamespaceRate: Rate{PerSecond: -1, Burst: 1}}, "Config.NamespaceRate is -1 a second"},
		{Config[Pod]{Path: filepath.Join(folder, "reported.json")}, "there is no folder " + folder},
		{Config[Pod]{Choice: Choice{Namespaces: []string{"Shop"}}}, `no namespace is named "Shop"`},
	} {
		_, err := New(test.config)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("the error is %v, want %q in it", err, test.want)
		}
	}
}

// TestALedgerThatCannotBeWritten leaves nothing beside it: on a full disk, a part of it takes room.
func TestALedgerThatCannotBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reported.json")
	check(t, os.Mkdir(path, 0o700)) // what is renamed replaces no folder
	if err := saveLedger(path, &record{Version: ledgerVersion, Since: time.Now()}); err == nil {
		t.Fatal("a folder was replaced")
	}
	if _, err := os.Lstat(path + ".new"); !os.IsNotExist(err) {
		t.Errorf("%s.new is left: %v", path, err)
	}
}

// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig looks at kubeconfigs before they are read: a path on a dead mount would hold
// up a program that heeds no signal meanwhile.
//
// # Concurrency
//
// CheckMounts is safe for concurrent use, each call with rules of its own.
package kubeconfig

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/evented-pleg/evented-pleg/internal/deadmount"
)

// CheckMounts refuses kubeconfigs, and files named in them, about whose paths the kernel gives no
// answer. The error names the flag --kubeconfig and the path. Other faults are left to the reader
// of the kubeconfig.
func CheckMounts(rules *clientcmd.ClientConfigLoadingRules) error {
	err := check(rules.GetLoadingPrecedence())
	if err != nil {
		return err
	}
	config, err := rules.Load()
	if err != nil {
		return nil // the reader tells
	}
	return check(filesOf(config))
}

// check refuses paths about which the kernel gives no answer.
func check(paths []string) error {
	for _, path := range paths {
		err := deadmount.Check(path)
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
	}
	return nil
}

// filesOf returns the paths of the files that a kubeconfig names.
func filesOf(config *api.Config) (paths []string) {
	for _, cluster := range config.Clusters {
		paths = append(paths, cluster.CertificateAuthority)
	}
	for _, user := range config.AuthInfos {
		paths = append(paths, user.ClientCertificate, user.ClientKey, user.TokenFile)
	}
	return paths
}

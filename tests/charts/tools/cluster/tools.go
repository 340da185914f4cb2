//go:build tools

// Package cluster names the programs that tests/charts/cluster.py starts.
package cluster

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)

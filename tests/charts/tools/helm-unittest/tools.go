//go:build tools

// Package tools names the program that the tests of the chart run.
package tools

import _ "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"

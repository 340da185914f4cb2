//go:build tools

// Package tools names the program that the tests of the chart run.
package tools

import _ "github.com/norwoodj/helm-docs/cmd/helm-docs"

//go:build tools

// Package compose names where the schema of Compose files is.
package compose

import (
	_ "github.com/compose-spec/compose-go/v2/schema"
)

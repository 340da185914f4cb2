//go:build tools

// Package gateway names where the Gateway API's definitions of its kinds are.
package gateway

import (
	_ "sigs.k8s.io/gateway-api/apis/v1"
)

//go:build !unix

package bench

import "time"

// ownCPU is unknown on this system.
func ownCPU() time.Duration { return 0 }

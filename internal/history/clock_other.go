//go:build !unix

package history

import "time"

// Now returns the time of the machine's clock. Unlike on Unix it follows corrections of that
// clock, so the rules about times are not checked on such systems.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }

//go:build !linux

package cpumeter

import "time"

// Meter knows nothing here.
type Meter struct{}

// Server returns a meter that knows nothing.
func Server(int) Meter { return Meter{} }

// Process returns a meter that knows nothing.
func Process(int, string) Meter { return Meter{} }

// Total reports that nothing is known.
func (Meter) Total() (time.Duration, bool) { return 0, false }

// Of returns 0.
func Of(uint32) time.Duration { return 0 }

//go:build !linux

package cpumeter

import "time"

// Meter returns no value on this system.
type Meter struct{}

// Server returns a meter without a value.
func Server(int) Meter { return Meter{} }

// Process returns a meter without a value.
func Process(int, string) Meter { return Meter{} }

// Total reports that the value is unknown.
func (Meter) Total() (time.Duration, bool) { return 0, false }

// Of returns 0.
func Of(uint32) time.Duration { return 0 }

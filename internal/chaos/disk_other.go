//go:build unix && !linux

package chaos

import (
	"context"
	"errors"
	"slices"
)

var errNoDisk = errors.New("only Linux can mount a small file system for it")

func (r *rig) makeSmall(string) error {
	if slices.Contains(r.Kinds, DiskFull) {
		return errNoDisk
	}
	return nil
}

func (r *rig) dropSmall() error { return nil }

func (r *rig) fillDisk() func(context.Context) error {
	return func(context.Context) error { return errNoDisk }
}

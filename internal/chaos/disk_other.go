//go:build unix && !linux

package chaos

import (
	"context"
	"errors"
	"slices"
)

var errNoDisk = errors.New("only Linux can mount a small file system for it")

func (s *postgresStore) makeSmall(string) error {
	if slices.Contains(s.Kinds, DiskFull) {
		return errNoDisk
	}
	return nil
}

func (s *postgresStore) dropSmall() error { return nil }

func (s *postgresStore) fillDisk() func(context.Context) error {
	return func(context.Context) error { return errNoDisk }
}

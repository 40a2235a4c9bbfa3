package main

import (
	"context"
	"os"
	"os/exec"
)

// inGo is embedded by products that run in this program.
type inGo struct{}

func (inGo) prepare(context.Context, *tools) error { return nil }

func (inGo) command(ctx context.Context) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), roleEnv+"=1")
	return cmd
}

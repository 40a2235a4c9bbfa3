//go:build unix && !linux

package cli

import "syscall"

// childOf lets a child be in a group of its own. It does not end with this process.
func childOf() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

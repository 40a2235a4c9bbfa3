package cli

import "syscall"

// childOf lets a child be in a group of its own, and end with the thread that started
// it.
func childOf() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

package cli

import "syscall"

// childOf puts a child in its own process group, and ends it with the thread that started
// it.
func childOf() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

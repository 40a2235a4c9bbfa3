//go:build unix

package prove

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// process is a sender or a worker.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
	err   error // after ended is closed
}

// replace starts a process of a role in the place of another one; -1 adds it.
func (p *proof) replace(all *[]*process, which int, role string) error {
	p.born[role]++
	name := fmt.Sprintf("%s-%d", role, p.born[role])
	raw, err := json.Marshal(task{Role: role, Name: name, Dir: p.Dir, URL: p.Database.URL(), Rate: p.Rate / senders,
		Seed: p.Seed + uint64(p.born[role]), Sabotage: p.sabotage})
	if err != nil {
		return err
	}
	one := &process{name: name, cmd: exec.Command(p.Command[0], p.Command[1:]...), ended: make(chan struct{})}
	one.cmd.Stdout, one.cmd.Stderr = p.Words, p.Words
	one.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the parent alone
	in, err := one.cmd.StdinPipe()
	if err != nil {
		return err
	}
	one.stdin = in
	if err := one.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		one.err = one.cmd.Wait()
		close(one.ended)
	}()
	if _, err := in.Write(append(raw, '\n')); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if which < 0 {
		*all = append(*all, one)
	} else {
		(*all)[which] = one
	}
	return nil
}

// gone reports whether the process has ended.
func (one *process) gone() bool {
	select {
	case <-one.ended:
		return true
	default:
		return false
	}
}

// kill ends the process with SIGKILL and returns when it is gone.
func (one *process) kill() {
	_ = one.cmd.Process.Kill()
	<-one.ended
}

// end asks processes to end with SIGTERM, and kills those that do not. It remembers those that
// had ended already.
func (p *proof) end(all []*process) {
	for _, one := range all {
		if one.gone() {
			p.graves = append(p.graves, one)
		} else {
			_ = one.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	late := time.After(stopPatience)
	for _, one := range all {
		select {
		case <-one.ended:
		case <-late:
			one.kill()
			one.err = errors.New("it did not end when it was asked to")
			p.graves = append(p.graves, one)
		}
	}
}

// killAll ends the processes of a run that failed.
func (p *proof) killAll() {
	for _, all := range [][]*process{p.workers, p.senders} {
		for _, one := range all {
			one.kill()
		}
	}
}

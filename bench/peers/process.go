package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// leaving is how long a process may take to end after it was told to stop.
const leaving = 10 * time.Second

// process is a sending or working process, as the measuring process sees it.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser

	mu      sync.Mutex
	encoder *json.Encoder

	answers chan report
	over    chan struct{} // its output has ended
	err     error         // the reason, after over is closed

	handled atomic.Int64
	marks   []mark                  // of handled, guarded by mu
	follow  atomic.Pointer[process] // receives the number of handled messages
}

// mark is the number of handled messages at a time of [monotonic].
type mark struct{ handled, at int64 }

// nearlyAll is the share of the messages that counts in the rate of handling. The last few
// wait for a poll or a tick, which would distort the rate of a short run.
const nearlyAll = 0.99

// rate returns the rate of handling, from the time at which had messages were handled until
// nearly all of n more were handled.
func rate(marks []mark, had, begun, n int64) *float64 {
	for _, m := range marks {
		if m.at > begun && float64(m.handled-had) >= nearlyAll*float64(n) {
			return per(float64(m.handled-had), seconds(m.at-begun))
		}
	}
	return nil
}

// start starts a process of a product and waits until it is ready.
func start(ctx context.Context, p peer, o order) (*process, error) {
	w := &process{name: o.Product + "'s " + o.Role + " process", cmd: p.command(ctx), answers: make(chan report, 4), over: make(chan struct{})}
	w.cmd.Stderr = os.Stderr
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s cannot be started: %w", w.name, err)
	}
	w.in, w.encoder = in, json.NewEncoder(in)
	go w.listen(out)
	if err = w.encoder.Encode(o); err == nil {
		_, err = w.answer(ctx, 60*time.Second)
	}
	if err != nil {
		return nil, errors.Join(err, w.end())
	}
	return w, nil
}

func (w *process) listen(out io.Reader) {
	defer close(w.over)
	for decoder := json.NewDecoder(out); ; {
		var r report
		if err := decoder.Decode(&r); err != nil {
			if !errors.Is(err, io.EOF) {
				w.err = fmt.Errorf("%s cannot be understood: %w", w.name, err)
			}
			return
		}
		if r.Error != "" {
			w.err = fmt.Errorf("%s failed: %s", w.name, r.Error)
			return
		}
		if r.Handled != nil && *r.Handled > w.handled.Load() {
			w.handled.Store(*r.Handled)
			w.mu.Lock()
			w.marks = append(w.marks, mark{*r.Handled, monotonic()})
			w.mu.Unlock()
			if f := w.follow.Load(); f != nil {
				_ = f.tell(line{Handled: *r.Handled}) // if it has ended, it reports that itself
			}
		}
		if r.Ready || r.Sent != nil || r.CPU != nil {
			w.answers <- r
		}
	}
}

// rate is the rate of the process; see the function.
func (w *process) rate(had, begun, n int64) *float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return rate(w.marks, had, begun, n)
}

func (w *process) tell(l line) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.encoder.Encode(l)
}

// answer waits for the next answer.
func (w *process) answer(ctx context.Context, patience time.Duration) (report, error) {
	select {
	case r := <-w.answers:
		return r, nil
	case <-w.over:
		if w.err != nil {
			return report{}, w.err
		}
		return report{}, fmt.Errorf("%s ended early", w.name)
	case <-time.After(patience):
		return report{}, fmt.Errorf("%s did not answer within %s", w.name, patience)
	case <-ctx.Done():
		return report{}, ctx.Err()
	}
}

// ask sends an order to the process and waits for its answer.
func (w *process) ask(ctx context.Context, l line) (report, error) {
	if err := w.tell(l); err != nil {
		return report{}, fmt.Errorf("%s does not listen: %w", w.name, err)
	}
	return w.answer(ctx, time.Duration(l.Run)*time.Millisecond+time.Minute)
}

// end stops the process and waits for its end.
func (w *process) end() error {
	if w == nil {
		return nil
	}
	_ = w.in.Close()
	select {
	case <-w.over:
	case <-time.After(leaving):
		_ = w.cmd.Process.Kill() // it reports nothing more
		<-w.over
		_ = w.cmd.Wait()
		return nil
	}
	if err := w.cmd.Wait(); err != nil && w.err == nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return nil
}

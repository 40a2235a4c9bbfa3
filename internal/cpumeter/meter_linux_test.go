package cpumeter

import (
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// A server's CPU time is known and never decreases while its children come and go.
func TestMeterOfAServerWhoseChildrenEnd(t *testing.T) {
	t.Parallel()
	m := Process(os.Getpid(), "")
	stop := make(chan struct{})
	var others sync.WaitGroup
	defer others.Wait()
	defer close(stop)
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	first, ok := m.Total()
	if !ok {
		t.Fatal("it is not known")
	}
	last := first
	asked, begun := 0, time.Now()
	testrun.Until(t, time.Minute, "some is counted", func() bool {
		now, ok := m.Total()
		if !ok || now < last {
			t.Fatalf("%s after %s; known: %t", now, last, ok)
		}
		last = now
		asked++
		return asked >= 10 && time.Since(begun) > 200*time.Millisecond && last > first
	})
}

// The CPU time of a child that was never seen alive counts once.
func TestMeterCountsChildrenThatItNeverSaw(t *testing.T) {
	t.Parallel()
	server := exec.Command("sh", "-c", "read go; sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo; read end")
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	m := Process(server.Process.Pid, "")
	before, ok := m.Total()
	_, _ = in.Write([]byte("go\n"))
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	after, still := m.Total()
	again, _ := m.Total()
	_ = in.Close()
	_ = server.Wait()
	u := server.ProcessState
	if used := u.UserTime() + u.SystemTime(); !ok || !still || after-before < used/4 || after-before > 2*used+50*time.Millisecond || again-after > used/4 {
		t.Errorf("%s, %s and %s, known: %t, %t; it used %s", before, after, again, ok, still, used)
	}
}

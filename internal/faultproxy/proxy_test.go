package faultproxy

import (
	"bufio"
	"net"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// If the response to be cut never comes because its connection ended, the fault applies to the
// next connection.
func TestCutAfterOutlivesAConnection(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for n := 0; ; n++ {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			if n > 0 {
				_, _ = conn.Write([]byte(line))
				continue
			}
			conn.Close() // without a response
		}
	}()
	p, err := New(server.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	cut := p.CutAfter()
	for n := range 3 {
		conn, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Write([]byte("hello\n")); err != nil {
			t.Fatal(err)
		}
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if want := []string{"", "", "hello\n"}[n]; answer != want {
			t.Fatalf("request %d was answered with %q (%v), want %q", n, answer, err, want)
		}
		testrun.Until(t, time.Minute, "the connection ends", func() bool { return n == 2 || p.Connections() == 0 })
	}
	select {
	case <-cut:
	default:
		t.Error("the waiter was not notified")
	}
}

package main

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// dialAs dials a proxy as a server does, and returns the connection after one echo.
func dialAs(t *testing.T, p *proxy, name string) (net.Conn, error) {
	t.Helper()
	c, err := net.Dial("tcp", p.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte(`CONNECT {"name":"x"}` + "\r\n")); err != nil {
		return c, err
	}
	if _, err := c.Write([]byte(`INFO {"server_name":"` + name + `"}` + "\n")); err != nil {
		return c, err
	}
	lines := bufio.NewReader(c)
	if _, err := lines.ReadString('\n'); err != nil {
		return c, err
	}
	_, err = lines.ReadString('\n')
	return c, err
}

func TestProxyCutsOneServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					_, _ = c.Write(append(lines.Bytes(), '\n'))
				}
			}()
		}
	}()
	p, err := newProxy("n0", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.listener.Close() })
	from1, err := dialAs(t, p, "n1")
	if err != nil {
		t.Fatal(err)
	}
	from2, err := dialAs(t, p, "n2")
	if err != nil {
		t.Fatal(err)
	}
	p.cut("n1", true)
	if _, err := from1.Read(make([]byte, 1)); err == nil {
		t.Error("the route of n1 is open")
	}
	if _, err := dialAs(t, p, "n1"); err == nil {
		t.Error("a new route of n1 was accepted")
	}
	if _, err := from2.Write([]byte("still here\n")); err != nil {
		t.Error("the route of n2 was closed:", err)
	}
	if line, err := bufio.NewReader(from2).ReadString('\n'); err != nil || line != "still here\n" {
		t.Errorf("n2 read %q, %v", line, err)
	}
	p.cut("n1", false)
	if _, err := dialAs(t, p, "n1"); err != nil {
		t.Error("n1 could not join:", err)
	}
	p.cut("n0", true)
	if _, err := from2.Read(make([]byte, 1)); err == nil {
		t.Error("n0 was cut off, and the route of n2 to it is open")
	}
	if _, err := dialAs(t, p, "n2"); err == nil {
		t.Error("n0 was cut off, and a new route was accepted")
	}
}

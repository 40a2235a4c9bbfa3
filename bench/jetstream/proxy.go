package main

import (
	"io"
	"net"
	"regexp"
	"sync"
)

// A proxy forwards the routes to one server. It reads the name of the server that dials from
// the first bytes, so that it can cut one server off while the others keep their routes.
type proxy struct {
	to       string // name of the server
	backend  string
	listener net.Listener

	mu    sync.Mutex
	off   map[string]bool
	conns map[*link]bool
}

type link struct {
	from     string // unknown before the dialing server has sent its INFO
	dialed   net.Conn
	accepted net.Conn
}

func (l *link) close() {
	l.accepted.Close()
	l.dialed.Close()
}

func newProxy(to, backend string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{to: to, backend: backend, listener: l, off: map[string]bool{}, conns: map[*link]bool{}}
	go p.accept()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// cut closes all routes from and to a server, and refuses new ones until it is joined again.
func (p *proxy) cut(name string, off bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off[name] = off
	for l := range p.conns {
		if off && (name == p.to || name == l.from) {
			l.close()
		}
	}
}

func (p *proxy) accept() {
	for {
		accepted, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.forward(accepted)
	}
}

func (p *proxy) forward(accepted net.Conn) {
	defer accepted.Close()
	dialed, err := net.Dial("tcp", p.backend)
	if err != nil {
		return
	}
	l := &link{accepted: accepted, dialed: dialed}
	defer l.close()
	p.mu.Lock()
	refused := p.off[p.to]
	p.conns[l] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, l)
		p.mu.Unlock()
	}()
	if refused {
		return
	}
	go func() {
		defer l.close()
		_, _ = io.Copy(accepted, dialed)
	}()
	if p.identify(l) {
		_, _ = io.Copy(dialed, accepted)
	}
}

var serverName = regexp.MustCompile(`"server_name":"(\w+)"`)

// identify forwards what the dialing server sends until it has told its name. It reports
// whether the route may stay.
func (p *proxy) identify(l *link) bool {
	var head []byte
	buffer := make([]byte, 4096)
	for {
		n, err := l.accepted.Read(buffer)
		if err != nil {
			return false
		}
		head = append(head, buffer[:n]...)
		if name := serverName.FindSubmatch(head); name != nil {
			p.mu.Lock()
			l.from = string(name[1])
			refused := p.off[l.from] || p.off[p.to]
			p.mu.Unlock()
			if refused {
				return false
			}
			_, err := l.dialed.Write(buffer[:n])
			return err == nil
		}
		if _, err := l.dialed.Write(buffer[:n]); err != nil {
			return false
		}
	}
}

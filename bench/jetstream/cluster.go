package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const servers = 3

// A node is one NATS server, a process of this program with its role.
type node struct {
	name       string
	config     string
	url        string
	proxy      *proxy
	mu         sync.Mutex
	cmd        *exec.Cmd
	exited     chan struct{}
	clientAddr string
}

// A cluster is three servers whose routes go through proxies.
type cluster []*node

// newCluster writes the configuration of the servers below dir and starts them.
func newCluster(dir string) (c cluster, err error) {
	routes := make([]string, servers)
	for i := range servers {
		name := fmt.Sprintf("n%d", i)
		client, err := freeAddress()
		if err != nil {
			return nil, err
		}
		if routes[i], err = freeAddress(); err != nil {
			return nil, err
		}
		p, err := newProxy(name, routes[i])
		if err != nil {
			return nil, err
		}
		c = append(c, &node{name: name, config: filepath.Join(dir, name+".conf"), clientAddr: client, url: "nats://" + client, proxy: p})
	}
	for i, n := range c {
		var others []string
		for _, other := range c {
			if other != n {
				others = append(others, `"nats://`+other.proxy.address()+`"`)
			}
		}
		text := fmt.Sprintf("server_name: %s\nlisten: %q\njetstream: {store_dir: %q}\nlog_file: %q\n"+
			"cluster: {name: trial, listen: %q, advertise: %q, routes: [%s]}\n",
			n.name, n.clientAddr, filepath.Join(dir, n.name), filepath.Join(dir, n.name+".log"),
			routes[i], n.proxy.address(), strings.Join(others, ", "))
		if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
			return nil, err
		}
		if err := n.start(); err != nil {
			c.stop()
			return nil, err
		}
	}
	return c, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (c cluster) urls() string {
	var urls []string
	for _, n := range c {
		urls = append(urls, n.url)
	}
	return strings.Join(urls, ",")
}

func (c cluster) named(name string) *node {
	for _, n := range c {
		if n.name == name {
			return n
		}
	}
	return nil
}

func (c cluster) stop() {
	for _, n := range c {
		n.end(syscall.SIGKILL)
	}
}

// cut cuts a server off from the others, or joins it again.
func (c cluster) cut(name string, off bool) {
	for _, n := range c {
		n.proxy.cut(name, off)
	}
}

// start starts the server unless it is running.
func (n *node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		return nil
	}
	cmd, err := child("server", n.config)
	if err != nil {
		return err
	}
	n.cmd, n.exited = cmd, make(chan struct{})
	go func(exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(n.exited)
	return nil
}

// end sends the server a signal that ends it, and waits for its end.
func (n *node) end(signal syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Signal(signal)
	select {
	case <-n.exited:
	case <-time.After(30 * time.Second):
		_ = n.cmd.Process.Kill()
		<-n.exited
	}
	n.cmd = nil
}

const roleEnv = "JETSTREAM_TRIAL_ROLE"

// child starts a process of this program. It ends with its parent.
func child(role string, args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd, cmd.Start()
}

// serve runs a NATS server until a signal ends it.
func serve(config string) error {
	options, err := server.ProcessConfigFile(config)
	if err != nil {
		return err
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.Running() {
		return errors.New("the server did not start; see its log beside " + config)
	}
	s.WaitForShutdown()
	return nil
}

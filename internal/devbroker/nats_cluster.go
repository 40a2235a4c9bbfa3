//go:build unix

package devbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsNodes is the number of servers of a cluster.
const natsNodes = 3

// NATSCluster is three NATS servers with JetStream on the loopback address. The routes between
// them go through proxies, so that a server can be cut off. Its methods are not safe for
// concurrent use.
type NATSCluster struct {
	Nodes  []*NATSNode
	direct bool // the routes have no proxies
}

// NATSNode is a server of a cluster.
type NATSNode struct {
	*NATS
	// Name is its server name.
	Name string

	routes int      // the port for the other servers
	peers  []*route // through which it dials the others
	here   []*route // through which the others dial it
	down   bool
	paused bool
	cut    bool
}

// StartNATSCluster starts a cluster that stores its streams below dir, and waits until it has a
// leader and all servers. further are lines for the configuration file of each server.
func StartNATSCluster(ctx context.Context, dir string, further ...string) (*NATSCluster, error) {
	return startNATSCluster(ctx, &NATSCluster{}, dir, further)
}

// StartNATSClusterDirect is [StartNATSCluster] without proxies, which would cost time and CPU. No server
// can be cut off.
func StartNATSClusterDirect(ctx context.Context, dir string, further ...string) (*NATSCluster, error) {
	return startNATSCluster(ctx, &NATSCluster{direct: true}, dir, further)
}

func startNATSCluster(ctx context.Context, c *NATSCluster, dir string, further []string) (*NATSCluster, error) {
	path, err := NATSServer()
	if err != nil {
		return nil, err
	}
	for i := range natsNodes {
		n := &NATSNode{NATS: &NATS{path: path, dir: filepath.Join(dir, fmt.Sprint("node", i))}, Name: fmt.Sprint("n", i), down: true}
		c.Nodes = append(c.Nodes, n)
		err = os.Mkdir(n.dir, 0o700)
		if err == nil {
			n.port, err = TakePort()
		}
		if err == nil {
			n.routes, err = TakePort()
		}
		if err != nil {
			return nil, err
		}
	}
	if err := c.start(ctx, further); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *NATSCluster) start(ctx context.Context, further []string) error {
	for _, n := range c.Nodes {
		if err := c.configure(n, further); err != nil {
			return err
		}
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	return until(ctx, "the cluster has a leader and all servers", func() bool { return c.complete(ctx) })
}

// configure writes the configuration of a server, with a proxy before each other server. Its
// advertised address is a closed port, so that no route goes around the proxies.
func (c *NATSCluster) configure(n *NATSNode, further []string) error {
	var urls []string
	for _, other := range c.Nodes {
		if other == n {
			continue
		}
		if c.direct {
			urls = append(urls, strconv.Quote("nats://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(other.routes))))
			continue
		}
		p, err := newRoute(net.JoinHostPort("127.0.0.1", strconv.Itoa(other.routes)))
		if err != nil {
			return err
		}
		n.peers, other.here = append(n.peers, p), append(other.here, p)
		urls = append(urls, strconv.Quote("nats://"+p.address()))
	}
	settings := append([]string{
		"server_name: " + n.Name,
		"listen: " + strconv.Quote(n.Address()),
		"log_file: " + strconv.Quote(filepath.Join(n.dir, "nats.log")),
		"jetstream: {store_dir: " + strconv.Quote(filepath.Join(n.dir, "streams")) + "}",
		"lame_duck_duration: 30s, lame_duck_grace_period: 1s",
		fmt.Sprintf("cluster: {name: tests, listen: \"127.0.0.1:%d\", advertise: \"127.0.0.1:1\", routes: [%s]}", n.routes, strings.Join(urls, ", ")),
	}, further...)
	return os.WriteFile(n.configuration(), []byte(strings.Join(settings, "\n")+"\n"), 0o600)
}

// complete reports whether the cluster has a leader that knows all servers: it can make a stream on
// all of them.
func (c *NATSCluster) complete(ctx context.Context) bool {
	probe := fmt.Sprintf(`{"name": "complete", "subjects": ["complete"], "storage": "memory", "retention": "limits", "num_replicas": %d}`, natsNodes)
	var made, gone struct {
		Error *struct{} `json:"error"`
	}
	return c.ask(ctx, "$JS.API.STREAM.CREATE.complete", probe, &made) == nil && made.Error == nil &&
		c.ask(ctx, "$JS.API.STREAM.DELETE.complete", "", &gone) == nil && gone.Error == nil
}

// ask sends a request to the first server that runs, is not cut off and answers.
func (c *NATSCluster) ask(ctx context.Context, subject, body string, reply any) (err error) {
	err = errors.New("no server runs")
	for _, n := range c.Nodes {
		if n.down || n.paused || n.cut {
			continue
		}
		if err = n.ask(ctx, subject, body, reply); err == nil {
			return nil
		}
	}
	return err
}

func (n *NATSNode) ask(ctx context.Context, subject, body string, reply any) error {
	conn, err := natsgo.Connect(n.URL(), natsgo.Timeout(2*time.Second), natsgo.NoReconnect())
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	answer, err := conn.RequestWithContext(ctx, subject, []byte(body))
	if err != nil {
		return err
	}
	return json.Unmarshal(answer.Data, reply)
}

// URL returns the URLs of all servers, separated by commas.
func (c *NATSCluster) URL() string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.URL())
	}
	return strings.Join(all, ",")
}

// State is what a cluster tells about a stream.
type State struct {
	Config struct {
		Replicas int `json:"num_replicas"`
	} `json:"config"`
	State struct {
		Messages int64  `json:"messages"`
		Last     uint64 `json:"last_seq"`
	} `json:"state"`
	Cluster jetstream.ClusterInfo `json:"cluster"`
	Error   *struct {
		Description string `json:"description"`
	} `json:"error"`
}

// Stream returns the state of a stream.
func (c *NATSCluster) Stream(ctx context.Context, name string) (*State, error) {
	s := &State{}
	if err := c.ask(ctx, "$JS.API.STREAM.INFO."+name, "", s); err != nil {
		return nil, err
	}
	if s.Error != nil {
		return nil, fmt.Errorf("stream %s: %s", name, s.Error.Description)
	}
	return s, nil
}

// Leader waits until a stream has a leader, at most a minute, and returns its server.
func (c *NATSCluster) Leader(ctx context.Context, stream string) (leader *NATSNode, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = until(ctx, "stream "+stream+" has a leader", func() bool {
		s, err := c.Stream(ctx, stream)
		if err != nil {
			return false
		}
		for _, n := range c.Nodes {
			if n.Name == s.Cluster.Leader {
				leader = n
			}
		}
		return leader != nil
	})
	return leader, err
}

// Whole reports whether a stream or a consumer with a number of replicas has a leader, and all others are up to
// date.
func Whole(c *jetstream.ClusterInfo, replicas int) bool {
	for _, r := range c.Replicas {
		if !r.Current || r.Offline {
			return false
		}
	}
	return c.Leader != "" && len(c.Replicas) == replicas-1
}

// Start starts the servers that do not run.
func (c *NATSCluster) Start(ctx context.Context) error {
	for _, n := range c.Nodes {
		if !n.down {
			continue
		}
		if err := n.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Kill kills all servers at one moment.
func (c *NATSCluster) Kill() {
	for _, n := range c.Nodes {
		if !n.down {
			_ = n.process.cmd.Process.Kill()
		}
	}
	for _, n := range c.Nodes {
		n.Kill()
	}
}

// Stop kills all servers; they are not started again.
func (c *NATSCluster) Stop() {
	c.Kill()
	for _, n := range c.Nodes {
		for _, p := range n.peers {
			p.close()
		}
	}
}

// CutOff cuts the routes between a server and the others. Clients still reach it.
func (n *NATSNode) CutOff() {
	n.cut = true
	for _, p := range append(slices.Clone(n.peers), n.here...) {
		p.cut(true)
	}
}

// Heal joins all servers again.
func (c *NATSCluster) Heal() {
	for _, n := range c.Nodes {
		n.cut = false
		for _, p := range n.peers {
			p.cut(false)
		}
	}
}

// Start starts the server again after Kill or Shutdown.
func (n *NATSNode) Start(ctx context.Context) error {
	err := n.NATS.Start(ctx)
	if err == nil {
		n.down = false
	}
	return err
}

// Kill kills it with SIGKILL.
func (n *NATSNode) Kill() { n.end(syscall.SIGKILL) }

// Shutdown stops it in order and keeps its data.
func (n *NATSNode) Shutdown() {
	n.Resume()
	n.end(syscall.SIGTERM)
}

// Retire lets it hand over its leaderships, move its clients to other servers and then end, as
// "nats-server --signal ldm" does.
func (n *NATSNode) Retire() {
	n.Resume()
	n.end(syscall.SIGUSR2)
}

func (n *NATSNode) end(s syscall.Signal) {
	if !n.down {
		n.process.end(s)
		n.down, n.paused = true, false
	}
}

// Pause stops the process with SIGSTOP, until Resume.
func (n *NATSNode) Pause() {
	if !n.down {
		_ = n.process.cmd.Process.Signal(syscall.SIGSTOP)
		n.paused = true
	}
}

// Resume lets a paused process go on.
func (n *NATSNode) Resume() {
	if n.paused {
		_ = n.process.cmd.Process.Signal(syscall.SIGCONT)
		n.paused = false
	}
}

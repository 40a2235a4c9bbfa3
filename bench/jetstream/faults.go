package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// faults counts the faults of servers and workers.
type faults struct {
	LeadersKilled   int `json:"leaders_killed"`
	AllKilled       int `json:"all_killed"`
	RollingRestarts int `json:"rolling_restarts"`
	FollowersCut    int `json:"followers_cut"`
	WorkersFrozen   int `json:"workers_frozen"`
}

type chaos struct {
	faults
	cluster cluster
	js      jetstream.JetStream
	workers []*exec.Cmd
	lease   time.Duration
	tell    func(format string, args ...any)
}

const (
	tickLength = 20 * time.Second
	downTime   = 4 * time.Second
)

// run runs the plan of faults: every 20 s the leader is killed, and 10 s later there may be
// another fault. When ctx ends it heals everything.
func (c *chaos) run(ctx context.Context, duration time.Duration) {
	var freezing sync.WaitGroup
	freezing.Go(func() { c.freeze(ctx, duration) })
	for tick := 0; ctx.Err() == nil; tick++ {
		end := time.Now().Add(tickLength)
		if tick > 0 {
			c.tick(ctx, tick, duration < 10*time.Minute)
		}
		pause(ctx, time.Until(end))
	}
	freezing.Wait()
	for _, n := range c.cluster {
		c.cluster.cut(n.name, false)
		if err := n.start(); err != nil {
			c.tell("%s cannot be started: %v", n.name, err)
		}
	}
}

// tick is 20 s. In the short form each fault comes early.
func (c *chaos) tick(ctx context.Context, tick int, short bool) {
	all, rolling, cut := tick%15 == 3, tick%6 == 4, tick%3 == 1
	if short {
		rolling = tick%6 == 2
	}
	if all {
		c.tell("all servers are killed")
		c.AllKilled++
		c.cluster.stop()
		pause(ctx, downTime)
		for _, n := range c.cluster {
			_ = n.start()
		}
		return
	}
	leader := c.leader(ctx)
	if leader == nil {
		c.tell("there is no leader to kill")
	} else {
		c.LeadersKilled++
		leader.end(syscall.SIGKILL)
		pause(ctx, downTime)
		_ = leader.start()
		c.tell("%s, the leader, was killed and started", leader.name)
	}
	pause(ctx, 6*time.Second)
	switch {
	case ctx.Err() != nil:
	case rolling:
		c.rolling(ctx)
	case cut:
		c.cutFollower(ctx)
	}
}

func (c *chaos) leader(ctx context.Context) *node {
	for ctx.Err() == nil {
		if info := streamInfo(ctx, c.js); info != nil && info.Cluster != nil && info.Cluster.Leader != "" {
			return c.cluster.named(info.Cluster.Leader)
		}
		pause(ctx, 200*time.Millisecond)
	}
	return nil
}

func streamInfo(ctx context.Context, js jetstream.JetStream) *jetstream.StreamInfo {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stream, err := js.Stream(ctx, streamName)
	if err != nil {
		return nil
	}
	return stream.CachedInfo()
}

// rolling restarts one server after the other in order, each when the one before is ready.
func (c *chaos) rolling(ctx context.Context) {
	c.RollingRestarts++
	for _, n := range c.cluster {
		n.end(syscall.SIGTERM)
		_ = n.start()
		start := time.Now()
		for ctx.Err() == nil && !healthy(ctx, c.js) {
			pause(ctx, 200*time.Millisecond)
		}
		c.tell("%s was restarted; healthy after %d ms", n.name, time.Since(start).Milliseconds())
	}
}

// healthy reports whether the stream and its consumer have leaders and current replicas.
func healthy(ctx context.Context, js jetstream.JetStream) bool {
	info := streamInfo(ctx, js)
	if info == nil || !current(info.Cluster) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	consumer, err := js.Consumer(ctx, streamName, consumerName)
	return err == nil && current(consumer.CachedInfo().Cluster)
}

func current(info *jetstream.ClusterInfo) bool {
	if info == nil || info.Leader == "" || len(info.Replicas) != servers-1 {
		return false
	}
	for _, r := range info.Replicas {
		if !r.Current || r.Offline {
			return false
		}
	}
	return true
}

func (c *chaos) cutFollower(ctx context.Context) {
	leader := c.leader(ctx)
	for _, i := range rand.Perm(servers) {
		if n := c.cluster[i]; leader != nil && n != leader {
			c.FollowersCut++
			c.cluster.cut(n.name, true)
			pause(ctx, 8*time.Second)
			c.cluster.cut(n.name, false)
			c.tell("%s, a follower, was cut off and joined", n.name)
			return
		}
	}
}

// freeze stops one worker for twice its lease each minute; in the short form the first after
// 15 s.
func (c *chaos) freeze(ctx context.Context, duration time.Duration) {
	first := min(time.Minute, duration/8)
	pause(ctx, first)
	for ctx.Err() == nil {
		end := time.Now().Add(time.Minute)
		w := c.workers[rand.IntN(len(c.workers))].Process
		c.WorkersFrozen++
		_ = w.Signal(syscall.SIGSTOP)
		pause(ctx, 2*c.lease)
		_ = w.Signal(syscall.SIGCONT)
		c.tell("worker %d was frozen for %v", w.Pid, 2*c.lease)
		pause(ctx, time.Until(end))
	}
}

// heal waits until the cluster is healthy after the faults.
func heal(ctx context.Context, js jetstream.JetStream) error {
	start := time.Now()
	for !healthy(ctx, js) {
		if time.Since(start) > 2*time.Minute || ctx.Err() != nil {
			return fmt.Errorf("the cluster was not healthy %v after the last fault", time.Since(start).Round(time.Second))
		}
		pause(ctx, 200*time.Millisecond)
	}
	return nil
}

package redisstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/posthaste-mq/posthaste/internal/redis"
	"github.com/posthaste-mq/posthaste/relay"
)

// layout is the slot map of a cluster, as one of its servers reports it.
type layout struct {
	masters []string // the address of the master of each slot; empty if it has none
	servers []string // the addresses of all servers
}

// newLayout parses the reply of the server at an address to CLUSTER SLOTS. It returns nil
// if the server is not part of a cluster or the user may not ask.
func newLayout(r reply, address string) *layout {
	if r.fault != "" {
		return nil
	}
	found := &layout{masters: make([]string, redis.Slots)}
	for _, span := range r.list {
		if len(span.list) < 3 {
			continue
		}
		for i, server := range span.list[2:] { // the first one is the master
			if len(server.list) < 2 {
				continue
			}
			at := net.JoinHostPort(server.list[0].text, server.list[1].text)
			if at = redis.Absolute(at, address); !slices.Contains(found.servers, at) {
				found.servers = append(found.servers, at)
			}
			for slot := max(0, span.list[0].int()); i == 0 && slot <= min(redis.Slots-1, span.list[1].int()); slot++ {
				found.masters[slot] = at
			}
		}
	}
	return found
}

// servers are the servers that have the streams: one, or the masters of a cluster.
type servers struct {
	target *target
	asking chan struct{} // held while servers are asked for the layout

	mu     sync.Mutex
	closed bool
	links  map[string]*relay.Connections[*link] // by address
	layout *layout                              // nil if no cluster is known
}

func newServers(t *target) *servers {
	return &servers{target: t, asking: make(chan struct{}, 1), links: map[string]*relay.Connections[*link]{}}
}

// at returns the connections to the server at an address.
func (s *servers) at(address string) *relay.Connections[*link] {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.links[address]
	if c == nil {
		c = relay.NewConnections(s.target.Connections, relay.Server{Kind: "redis", Address: address}, s.target.Logger, func(ctx context.Context) (*link, error) { return s.dial(ctx, address) })
		if s.links[address] = c; s.closed {
			c.Close()
		}
	}
	return c
}

// dial opens a link. If other servers have the slots of an unreachable server, the error is
// [relay.ErrElsewhere].
func (s *servers) dial(ctx context.Context, address string) (*link, error) {
	l, err := s.target.dial(ctx, address)
	if err == nil {
		s.learn(l)
		return l, nil
	}
	if ctx.Err() == nil && s.ask(ctx, address) && !s.has(address) {
		s.target.Logger.Info("another server of the cluster has the slots of this one", "broker", address, "error", err)
		err = fmt.Errorf("%w: %w", relay.ErrElsewhere, err)
	}
	return nil, err
}

// learn stores the layout that a server reported.
func (s *servers) learn(l *link) {
	if l.layout != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.layout = l.layout
	}
}

// ask asks another server than the one at an address for the layout, and reports whether
// one has answered.
func (s *servers) ask(ctx context.Context, address string) bool {
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return false
	}
	s.mu.Lock()
	others := slices.Clone(s.target.addresses)
	if s.layout != nil {
		others = append(others, s.layout.servers...)
	}
	s.mu.Unlock()
	slices.Sort(others)
	others = slices.DeleteFunc(slices.Compact(others), func(other string) bool { return other == address })
	for _, i := range rand.Perm(len(others)) {
		if l, err := s.target.dial(ctx, others[i]); err == nil {
			s.learn(l)
			l.Close()
			return l.layout != nil
		}
	}
	return false
}

// has reports whether the server at an address has slots.
func (s *servers) has(address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout == nil || slices.Contains(s.layout.masters, address)
}

// owner returns the address of the server that has a stream, as far as is known.
func (s *servers) owner(stream string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ownerLocked(stream)
}

func (s *servers) ownerLocked(stream string) string {
	if s.layout != nil {
		if address := s.layout.masters[redis.Slot(stream)]; address != "" {
			return address
		}
	}
	return s.target.addresses[0]
}

// group holds the jobs for one server.
type group struct {
	address string
	jobs    []job
}

// split groups jobs by the servers that have their streams.
func (s *servers) split(jobs []job) (groups []group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.layout == nil {
		return []group{{s.target.addresses[0], jobs}}
	}
	of := map[string]int{}
	for i := range jobs {
		address := jobs[i].asks
		if address == "" {
			address = s.ownerLocked(jobs[i].stream)
		}
		n, ok := of[address]
		if !ok {
			n = len(groups)
			of[address], groups = n, append(groups, group{address: address})
		}
		groups[n].jobs = append(groups[n].jobs, jobs[i])
	}
	return groups
}

// redirected reports whether the server at an address did not add a job because another
// server must, or because it cannot now. It updates the job and the layout.
func (s *servers) redirected(j *job, f fault, address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.layout == nil {
		return false
	}
	fields := strings.Fields(string(f))
	switch code := f.code(); {
	case len(fields) == 3 && (code == "MOVED" || code == "ASK"):
		to := redis.Absolute(fields[2], address)
		if j.asks = to; code == "MOVED" {
			j.asks = ""
			if slot, err := strconv.Atoi(fields[1]); err == nil && slot >= 0 && slot < redis.Slots {
				s.layout.masters[slot] = to
			}
		}
	case code == "CLUSTERDOWN" || code == "TRYAGAIN":
		j.asks = ""
	default:
		return false
	}
	j.why = f
	return true
}

// Away reports whether the last attempt to use a server that has slots failed.
func (s *servers) Away() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, c := range s.links {
		if c.Away() && (s.layout == nil || slices.Contains(s.layout.masters, address)) {
			return true
		}
	}
	return false
}

// Close closes all connections.
func (s *servers) Close() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.links))
	s.mu.Unlock() // because dial needs the lock
	for _, c := range all {
		c.Close()
	}
}

// any opens a link to the first server of the configuration that accepts one.
func (s *servers) any(ctx context.Context) (l *link, err error) {
	for _, address := range s.target.addresses {
		var fault error
		if l, fault = s.target.dial(ctx, address); fault == nil {
			s.learn(l)
			return l, nil
		}
		err = errors.Join(err, fault)
	}
	return nil, err
}

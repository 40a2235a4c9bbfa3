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

// layout is what a server of a cluster knows of it.
type layout struct {
	masters []string // the address of who has each slot; empty: nobody
	servers []string // the addresses of all
}

// newLayout understands the reply of the server at an address to CLUSTER SLOTS. nil: it
// is none of a cluster, or the user may not ask.
func newLayout(r reply, address string) *layout {
	if r.fault != "" {
		return nil
	}
	found := &layout{masters: make([]string, redis.Slots)}
	for _, span := range r.list {
		if len(span.list) < 3 {
			continue
		}
		for i, server := range span.list[2:] { // the master comes first
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

// servers are those that have the streams: one, or the masters of a cluster.
type servers struct {
	target *target
	asking chan struct{} // held while servers are asked who has which slot

	mu     sync.Mutex
	closed bool
	links  map[string]*relay.Connections[*link] // by address
	layout *layout                              // nil: it is no cluster, as far as is known
}

func newServers(t *target) *servers {
	return &servers{target: t, asking: make(chan struct{}, 1), links: map[string]*relay.Connections[*link]{}}
}

// at are the connections to the server at an address.
func (s *servers) at(address string) *relay.Connections[*link] {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.links[address]
	if c == nil {
		c = relay.NewConnections(s.target.Connections, "redis", address, s.target.Logger, func(ctx context.Context) (*link, error) { return s.dial(ctx, address) })
		if s.links[address] = c; s.closed {
			c.Close()
		}
	}
	return c
}

// dial opens a link. Where others have the slots of a server that cannot be reached,
// its error is [relay.ErrElsewhere].
func (s *servers) dial(ctx context.Context, address string) (*link, error) {
	l, err := s.target.dial(ctx, address)
	if err == nil {
		s.learn(l)
		return l, nil
	}
	if ctx.Err() == nil && s.ask(ctx, address) && !s.has(address) {
		s.target.Logger.Info("another server of the cluster has what this one had", "broker", address, "error", err)
		err = fmt.Errorf("%w: %w", relay.ErrElsewhere, err)
	}
	return nil, err
}

// learn keeps what a server knows of the cluster.
func (s *servers) learn(l *link) {
	if l.layout != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.layout = l.layout
	}
}

// ask asks another server than the one at an address who has which slot, and says
// whether one has told.
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

// has says whether the server at an address has slots.
func (s *servers) has(address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout == nil || slices.Contains(s.layout.masters, address)
}

// owner is the address of who has a stream, as far as is known.
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

// group is jobs for one server.
type group struct {
	address string
	jobs    []job
}

// split gives jobs to the servers that have their streams.
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

// redirected says whether a server of a cluster, the one at an address, did not add a
// job for it is not the one to do so, or not now; the job and the layout know then who is.
func (s *servers) redirected(j *job, f fault, address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.layout == nil {
		return false
	}
	said := strings.Fields(string(f))
	switch {
	case len(said) == 3 && (said[0] == "MOVED" || said[0] == "ASK"):
		to := redis.Absolute(said[2], address)
		if j.asks = to; said[0] == "MOVED" {
			j.asks = ""
			if slot, err := strconv.Atoi(said[1]); err == nil && slot >= 0 && slot < redis.Slots {
				s.layout.masters[slot] = to
			}
		}
	case len(said) > 0 && (said[0] == "CLUSTERDOWN" || said[0] == "TRYAGAIN"):
		j.asks = ""
	default:
		return false
	}
	j.why = f
	return true
}

// Away says whether one that is needed could not be used when it was tried last.
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

// Close ends all connections.
func (s *servers) Close() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.links))
	s.mu.Unlock() // which those want who are connecting
	for _, c := range all {
		c.Close()
	}
}

// any opens a link to the first server of the configuration that takes one.
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

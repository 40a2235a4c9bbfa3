// Package redis connects the Redis sink and source to their servers.
package redis

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/posthaste-mq/posthaste/internal/login"
)

// Servers takes apart the URL of a server, or of several of a Redis Cluster, which are
// separated by commas: redis://user:password@host:6379,host2:6379. first is the URL
// with the first of them alone, and addresses are the hosts and ports of all. Errors
// never hold a part of the URL, for each may be one of the password.
func Servers(text string) (first string, addresses []string, err error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme != "redis" && scheme != "rediss" {
		return "", nil, errors.New("it must begin with redis:// or rediss://")
	}
	if login.Misread(text) {
		return "", nil, errors.New("its user and password cannot be read")
	}
	at := strings.LastIndexByte(rest, '@') + 1
	end := len(rest)
	if i := strings.IndexAny(rest[at:], "/?#"); i >= 0 {
		end = at + i
	}
	hosts := strings.Split(rest[at:end], ",")
	for _, host := range hosts {
		u, err := url.Parse("redis://" + host)
		if err != nil || u.Hostname() == "" {
			return "", nil, errors.New("behind the user there must be a host with its port, or several separated by commas")
		}
		addresses = append(addresses, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379")))
	}
	return scheme + "://" + rest[:at] + hosts[0] + rest[end:], addresses, nil
}

// Slots is how many of them a Redis Cluster divides keys into.
const Slots = 16384

// Slot returns the slot of a key: the CRC16 of the text between its first braces or, if these
// are missing or empty, of the whole key.
func Slot(key string) int {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % Slots)
}

// Absolute is a server's address as the client has it: what another one says of it may
// lack the host or the port, or be the other's loopback.
func Absolute(said, by string) string {
	host, port, err := net.SplitHostPort(said)
	byHost, byPort, err2 := net.SplitHostPort(by)
	if err != nil || err2 != nil {
		return said
	}
	loopback := func(host string) bool {
		ip := net.ParseIP(host)
		return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
	}
	if host == "" || host == "?" || loopback(host) && !loopback(byHost) {
		host = byHost
	}
	if port == "0" {
		port = byPort
	}
	return net.JoinHostPort(host, port)
}

package postgres

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// environmentOf returns the default environment of a connection: its hosts, ports and
// database, or "" if the server is on this machine.
func environmentOf(config *pgx.ConnConfig) string {
	var hosts []string
	name := func(host string, port uint16) {
		addr, err := netip.ParseAddr(host)
		if host == "localhost" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || err == nil && addr.IsLoopback() {
			return
		}
		hosts = append(hosts, net.JoinHostPort(host, strconv.Itoa(int(port))))
	}
	name(config.Host, config.Port)
	for _, f := range config.Fallbacks {
		name(f.Host, f.Port)
	}
	if len(hosts) == 0 {
		return ""
	}
	slices.Sort(hosts)
	return strings.Join(slices.Compact(hosts), ",") + "/" + config.Database
}

// checkEnvironment returns a check that fails if the database hands out nothing to a program
// of the environment, because it is a copy or may be one.
func checkEnvironment(environment string) func(context.Context, querier) error {
	return func(ctx context.Context, q querier) error {
		var message, hint *string
		err := q.QueryRow(ctx, "select message, hint from posthaste.not_here($1)", environment).Scan(&message, &hint)
		if err != nil || message == nil {
			return readError(err)
		}
		return &posthaste.Error{Code: posthaste.CodeRefused, Message: *message, Hint: *hint}
	}
}

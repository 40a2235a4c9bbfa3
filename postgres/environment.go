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

// WithEnvironment names where this program belongs, such as "production". The ledger keeps
// the names that its workers gave in the last day. After the server was started or promoted,
// nothing is handed out until a program comes that gives one of these, or [Rebase] says that
// it may be: so a physical copy of production, such as a restored snapshot, does not deliver
// in a test environment. The default is what the URL says, hosts, ports and database; what is
// reached on this machine, by a loopback address or a socket, has no name of its own, and is
// told from nothing else that has none. At most 255 characters count.
func WithEnvironment(name string) Option {
	return func(o *options) { o.environment = name }
}

// environmentOf is the name that the URL of a connection gives.
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

// checkHere refuses a database that hands out nothing, for it is a copy, or may be one.
func (e *Engine) checkHere(ctx context.Context, q querier) error {
	var message, hint *string
	err := q.QueryRow(ctx, "select message, hint from posthaste.not_here($1)", e.environment).Scan(&message, &hint)
	if err != nil || message == nil {
		return readError(err)
	}
	return &posthaste.Error{Code: posthaste.Refused, Message: *message, Hint: *hint}
}

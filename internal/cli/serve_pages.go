package cli

import (
	"errors"
	"maps"
	"net/netip"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
	"github.com/posthaste-mq/posthaste/server"
)

// dashboardPath is where the dashboard is mounted.
const dashboardPath = "/dashboard"

// caughtPath is where up mounts the pages of caught mails.
const caughtPath = "/caught"

// pageFlags holds the flags of the pages for browsers.
type pageFlags struct {
	dashboard *bool // nil unless the flag is given
	// environment is shown on each page; serve has it from a flag of the database.
	environment string
	sessionKey  string
	prefix      string
	proxies     []string
	userHeader  string
	userScopes  []string
}

func (p *pageFlags) flags(flags *pflag.FlagSet) {
	flags.BoolFunc("dashboard", "serve the dashboard at "+dashboardPath+"/; default true if --listen is a loopback address", func(text string) error {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("must be true or false")
		}
		p.dashboard = &on
		return nil
	})
	flags.StringVar(&p.sessionKey, "session-key", "", "key of at least 32 bytes that seals the sessions of browsers; servers with the same key share sessions (prefer POSTHASTE_SESSION_KEY); default random")
	flags.StringVar(&p.prefix, "path-prefix", "", "path under which browsers reach the pages, such as /posthaste, if a reverse proxy removes it from requests")
	flags.StringSliceVar(&p.proxies, "trusted-proxy", nil, "address or network of a reverse proxy whose headers X-Forwarded-Prefix, X-Forwarded-Proto and --user-header are trusted; may be repeated")
	flags.StringVar(&p.userHeader, "user-header", "", "header in which a trusted proxy names the user that it has signed in, such as X-Forwarded-User")
	flags.StringSliceVar(&p.userScopes, "user-scope", []string{string(posthaste.ScopeRead)}, "with --user-header, scope of these users; may be repeated")
}

// shows reports whether the dashboard is switched on, which it is by default on loopback
// addresses. exposed is the error of listening elsewhere without a token.
func (p *pageFlags) shows(exposed error) bool {
	if p.dashboard != nil {
		return *p.dashboard
	}
	return exposed == nil
}

// mount adds the dashboard to the mounted pages.
func (p *pageFlags) mount(engine posthaste.Store, mounts map[string]server.Mount) map[string]server.Mount {
	config := dashboard.Config{Environment: p.environment}
	if _, ok := mounts[caughtPath]; ok {
		config.CaughtMail = ".." + caughtPath + "/"
	}
	all := map[string]server.Mount{dashboardPath: dashboard.Mount(engine, config)}
	maps.Copy(all, mounts)
	return all
}

// pages returns the configuration of the pages.
func (p *pageFlags) pages() (server.Pages, error) {
	pages := server.Pages{Key: []byte(p.sessionKey), Prefix: p.prefix, UserHeader: p.userHeader}
	if p.sessionKey != "" && len(p.sessionKey) < 32 {
		return pages, posthaste.Invalidf("session-key", "--session-key must have at least 32 bytes, got %d", len(p.sessionKey))
	}
	for _, text := range p.proxies {
		network, err := netip.ParsePrefix(text)
		if addr, plain := netip.ParseAddr(text); plain == nil {
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return pages, posthaste.Invalidf("trusted-proxy", "--trusted-proxy must be an IP address or a network such as 10.0.0.0/8, got %q", text)
		}
		pages.Proxies = append(pages.Proxies, network)
	}
	for _, scope := range p.userScopes {
		pages.UserScopes = append(pages.UserScopes, posthaste.Scope(scope))
	}
	return pages, nil
}

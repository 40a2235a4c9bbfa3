package cli

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/remote"
)

func newContext(a *app) *cobra.Command {
	return newGroup("context", "Manage named stores, such as prod and staging",
		newContextLs(a), newContextShow(a), newContextSet(a), newContextUse(a), newContextDrop(a))
}

// contextView is a context without its passwords.
type contextView struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	storeURLs
	// ServerToken is the reference to a variable, or conceals the token.
	ServerToken     string `json:"server_token,omitempty"`
	ServerTokenFile string `json:"server_token_file,omitempty"`
	AllowPlainHTTP  bool   `json:"allow_plain_http,omitempty"`
}

func newContextView(c *contexts, name string) contextView {
	t := c.Contexts[name]
	view := contextView{Name: name, Current: name == c.Current, ServerTokenFile: t.ServerTokenFile, AllowPlainHTTP: t.AllowPlainHTTP}
	for _, k := range t.set() {
		*k.url(&view.storeURLs), _ = concealed(*k.url(&t.storeURLs))
	}
	view.ServerToken, _ = hidden(t.ServerToken)
	return view
}

func newContextLs(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List contexts, without their passwords and tokens",
		Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			c, err := loadContexts()
			if err != nil {
				return err
			}
			shown := []contextView{}
			for _, name := range c.names() {
				shown = append(shown, newContextView(c, name))
			}
			return a.print(shown, func(w *screen) {
				if len(shown) == 0 {
					fmt.Fprintln(w, "no contexts; create one with: posthaste context set NAME, and "+urlNames())
					return
				}
				table(w, "CURRENT NAME STORE", func(row func(...any)) {
					for _, x := range shown {
						mark := ""
						if x.Current {
							mark = "*"
						}
						row(mark, x.Name, x.one())
					}
				})
			})
		},
	}
}

func newContextShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show [CONTEXT]", Short: "Show a context, or the current one, without its password or token",
		Args: between(0, 1, "a context"), ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := loadContexts()
			if err != nil {
				return err
			}
			name := c.Current
			if len(args) > 0 {
				name = args[0]
			} else if name == "" {
				return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "context", Message: "no context is in use", Hint: "select one with: posthaste context use CONTEXT"}
			}
			if _, err := c.find(name); err != nil {
				return err
			}
			x := newContextView(c, name)
			return a.print(x, func(w *screen) {
				plain := ""
				if x.AllowPlainHTTP {
					plain = "allowed"
				}
				pairs := []any{"context", x.Name, "current", x.Current}
				for _, k := range engines {
					pairs = append(pairs, strings.ReplaceAll(k.flag, "-", " "), *k.url(&x.storeURLs))
				}
				fields(w, append(pairs, "server token", x.ServerToken, "server token file", x.ServerTokenFile, "plain http", plain, "file", c.path)...)
			})
		},
	}
}

func newContextSet(a *app) *cobra.Command {
	var given target
	var use bool
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Create or replace a context",
		Long: `Create a context, or replace the one with that name: a name for a store, by which
--context, POSTHASTE_CONTEXT and context use select it. A store is a database, or a
server of the HTTP API for those who have a token and no access to its database.

Keep passwords out of it: PostgreSQL's are found in ~/.pgpass or the file that
PGPASSFILE names, and ${NAME} in a URL stands for the environment variable NAME.

The token for a server is asked for on a terminal. Keep it in a file with
--server-token-file, or in a variable with --server-token '${NAME}'. A context
without a token uses --server-token or POSTHASTE_SERVER_TOKEN of each command.`,
		Example: `  posthaste context set prod --database-url postgres://app@db.example.com/app --use
  posthaste context set jobs --redis-url 'rediss://app:${JOBS_PASSWORD}@redis.example.com/0'
  posthaste context set hub --nats-url 'nats://app:${HUB_PASSWORD}@n1:4222,nats://app:${HUB_PASSWORD}@n2:4222'
  posthaste context set shop --server-url https://mq.example.com --server-token-file ~/.config/shop.token`,
		Args: exactly(1, "a name"), ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := typedTarget(cmd.Flags(), given)
			if err == nil {
				err = posthaste.CheckName("name", args[0])
			}
			if err == nil && t.ServerURL != "" && t.ServerToken+t.ServerTokenFile == "" && a.interactive() {
				t.ServerToken, err = a.askToken(cmd.Context(), t.ServerURL)
			}
			if err != nil {
				return err
			}
			return setContext(a, args[0], t, use)
		},
	}
	cmd.Flags().SortFlags = false
	given.flags(cmd.Flags(), func(k engineKind) string {
		return k.noun + " for the context, " + strings.Replace(k.example, ":password", "", 1)
	})
	cmd.Flags().StringVar(&given.ServerToken, "server-token", "", "token for the server; ${NAME} stands for the environment variable NAME")
	cmd.Flags().StringVar(&given.ServerTokenFile, "server-token-file", "", "file from which each command reads the token for the server")
	cmd.Flags().BoolVar(&given.AllowPlainHTTP, "allow-plain-http", false, "allow a server URL with http:// that is not on this machine; the token and all messages can be read on the way")
	cmd.Flags().BoolVar(&use, "use", false, "use the context from now on")
	return cmd
}

// typedTarget returns the store that flags describe. Variables do not count: they select the store
// of other commands.
func typedTarget(flags *pflag.FlagSet, given target) (t *target, err error) {
	t = &target{}
	urls := 0
	for _, k := range engines {
		if typed(flags, k.flag) {
			urls++
			*k.url(&t.storeURLs) = *k.url(&given.storeURLs)
			err = cmp.Or(err, checkTarget(k.flag, *k.url(&given.storeURLs), k.schemes...))
		}
	}
	if urls != 1 {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "database-url", Message: "a context has one URL", Hint: "give either " + urlNames()}
	}
	for _, name := range apiFlags[1:] {
		if t.ServerURL == "" && typed(flags, name) {
			err = cmp.Or(err, posthaste.Invalidf(name, "--%s needs --server-url", name))
		}
	}
	if typed(flags, "server-token") && typed(flags, "server-token-file") {
		err = cmp.Or(err, posthaste.Invalidf("server-token-file", "--server-token and --server-token-file are mutually exclusive"))
	}
	if err != nil || t.ServerURL == "" {
		return t, err
	}
	if typed(flags, "server-token") {
		t.ServerToken = given.ServerToken
	}
	if typed(flags, "server-token-file") {
		if t.ServerTokenFile, err = absolute(given.ServerTokenFile); err == nil {
			_, err = readToken(t.ServerTokenFile)
		}
	}
	t.AllowPlainHTTP = typed(flags, "allow-plain-http") && given.AllowPlainHTTP
	if err == nil && variable.FindString(t.ServerURL) != t.ServerURL {
		_, err = remote.CheckURL(variable.ReplaceAllString(t.ServerURL, "x"), t.AllowPlainHTTP)
	}
	return t, err
}

func setContext(a *app, name string, t *target, use bool) error {
	c, err := loadContexts()
	if err != nil {
		return err
	}
	c.Contexts[name] = t
	if use {
		c.Current = name
	}
	if err := c.save(); err != nil {
		return err
	}
	if _, had := concealed(t.one()); had {
		where := "refer to a variable, such as ${PASSWORD}"
		if t.DatabaseURL != "" {
			where = "keep it in ~/.pgpass or the file of PGPASSFILE, or " + where
		}
		fmt.Fprintf(a.stderr, "posthaste: warning: the password is stored in %s\n  %s, in place of the password\n", c.path, where)
	}
	if _, had := hidden(t.ServerToken); had {
		fmt.Fprintf(a.stderr, "posthaste: warning: the token is stored in %s\n  keep it in a file with --server-token-file, or refer to a variable, such as ${TOKEN}, in place of the token\n", c.path)
	}
	return printContext(a, c, name, "set")
}

// printContext prints the change of a context, and warns of variables that override it.
func printContext(a *app, c *contexts, name, done string) error {
	if name == c.Current {
		for _, variable := range append([]string{"POSTHASTE_CONTEXT"}, urlVariables()...) {
			if value := os.Getenv(variable); value != "" && value != name {
				fmt.Fprintf(a.stderr, "posthaste: warning: %s is set, and overrides the current context\n", variable)
			}
		}
	}
	return a.print(map[string]string{done: name}, func(w *screen) { fmt.Fprintf(w, "context %s %s\n", name, done) })
}

func newContextUse(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "use CONTEXT", Short: "Make a context the current one",
		Long: `Make a context the current one, which commands use unless a flag or a variable selects
another store.`,
		Args: exactly(1, "a context"), ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			return changeContexts(a, args[0], "used", func(c *contexts) { c.Current = args[0] })
		},
	}
}

func newContextDrop(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "drop CONTEXT", Short: "Forget a context; its store is not changed",
		Args: exactly(1, "a context"), ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			return changeContexts(a, args[0], "dropped", func(c *contexts) {
				delete(c.Contexts, args[0])
				if c.Current == args[0] {
					c.Current = ""
				}
			})
		},
	}
}

// changeContexts changes an existing context.
func changeContexts(a *app, name, done string, change func(*contexts)) error {
	c, err := loadContexts()
	if err != nil {
		return err
	}
	if _, err := c.find(name); err != nil {
		return err
	}
	change(c)
	if err := c.save(); err != nil {
		return err
	}
	return printContext(a, c, name, done)
}

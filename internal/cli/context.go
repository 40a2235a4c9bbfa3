package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

func newContext(a *app) *cobra.Command {
	return newGroup("context", "Manage named stores, such as prod and staging",
		newContextLs(a), newContextShow(a), newContextSet(a), newContextUse(a), newContextDrop(a))
}

// contextView is a context without its passwords.
type contextView struct {
	Name        string `json:"name"`
	Current     bool   `json:"current"`
	DatabaseURL string `json:"database_url,omitempty"`
	RedisURL    string `json:"redis_url,omitempty"`
}

func newContextView(c *contexts, name string) contextView {
	t := c.Contexts[name]
	view := contextView{Name: name, Current: name == c.Current}
	view.DatabaseURL, _ = concealed(t.DatabaseURL)
	view.RedisURL, _ = concealed(t.RedisURL)
	return view
}

func newContextLs(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List contexts, without their passwords",
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
					fmt.Fprintln(w, "no contexts; create one with: posthaste context set NAME --database-url URL")
					return
				}
				table(w, "CURRENT NAME STORE", func(row func(...any)) {
					for _, x := range shown {
						mark := ""
						if x.Current {
							mark = "*"
						}
						row(mark, x.Name, x.DatabaseURL+x.RedisURL)
					}
				})
			})
		},
	}
}

func newContextShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show [CONTEXT]", Short: "Show a context, or the current one, without its password",
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
				fields(w, "context", x.Name, "current", x.Current, "database url", x.DatabaseURL, "redis url", x.RedisURL, "file", c.path)
			})
		},
	}
}

func newContextSet(a *app) *cobra.Command {
	var database, redis string
	var use bool
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Create or replace a context",
		Long: `Create a context, or replace the one with that name: a name for a store, by which
--context, POSTHASTE_CONTEXT and context use select it.

Keep passwords out of it: PostgreSQL's are found in ~/.pgpass or the file that
PGPASSFILE names, and ${NAME} in a URL stands for the environment variable NAME.`,
		Example: `  posthaste context set prod --database-url postgres://app@db.example.com/app --use
  posthaste context set jobs --redis-url 'rediss://app:${JOBS_PASSWORD}@redis.example.com/0'`,
		Args: exactly(1, "a name"), ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			// Variables select the store of other commands.
			t := &target{}
			var err error
			switch onDatabase, onRedis := typed(cmd.Flags(), "database-url"), typed(cmd.Flags(), "redis-url"); {
			case onDatabase == onRedis:
				return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "database-url", Message: "a context has one URL", Hint: "give either --database-url or --redis-url"}
			case onDatabase:
				t.DatabaseURL = database
				err = checkTarget("database-url", database, "postgres", "postgresql")
			default:
				t.RedisURL = redis
				err = checkTarget("redis-url", redis, "redis", "rediss")
			}
			if err == nil {
				err = posthaste.CheckName("name", args[0])
			}
			if err != nil {
				return err
			}
			return setContext(a, args[0], t, use)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&database, "database-url", "", "PostgreSQL URL of the context, postgres://user@host:5432/database")
	cmd.Flags().StringVar(&redis, "redis-url", "", "Redis URL of the context, redis://user@host:6379/0")
	cmd.Flags().BoolVar(&use, "use", false, "use the context from now on")
	return cmd
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
	if _, had := concealed(t.url()); had {
		where := "refer to a variable, such as ${PASSWORD}"
		if t.DatabaseURL != "" {
			where = "keep it in ~/.pgpass or the file of PGPASSFILE, or " + where
		}
		fmt.Fprintf(a.stderr, "posthaste: warning: the password is stored in %s\n  %s, in place of the password\n", c.path, where)
	}
	return printContext(a, c, name, "set")
}

// printContext prints the change of a context, and warns of variables that override it.
func printContext(a *app, c *contexts, name, done string) error {
	if name == c.Current {
		for _, variable := range []string{"POSTHASTE_CONTEXT", "POSTHASTE_DATABASE_URL", "DATABASE_URL", "POSTHASTE_REDIS_URL", "REDIS_URL"} {
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

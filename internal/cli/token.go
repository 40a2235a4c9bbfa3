package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newToken(a *app) *cobra.Command {
	return newGroup("token", "Manage tokens of the HTTP API", newTokenAdd(a), newTokenLs(a), needsStore(newNamed(a, "drop TOKEN", "Drop a token; servers reject it within seconds", "a token name", dropToken), noTokens))
}

// noTokens is why tokens are not changed over HTTP.
const noTokens = "the API changes no tokens, so that a stolen one cannot make another"

func newTokenAdd(a *app) *cobra.Command {
	var db database
	var t posthaste.Token
	var scopes []string
	var expiresAt string
	cmd := &cobra.Command{
		Use: "add NAME --scope SCOPE", Short: "Create a token and print its secret",
		Long: `Create a token and print its secret. The secret cannot be retrieved later, since
the database stores only its hash. Running servers accept the token within seconds.

To rotate a secret, add a token with a new name, give it to the client, and drop the
old one. After the first token is added, all servers on this database require one.`,
		Example: "  posthaste token add shop --scope send --queue orders --queue emails\n  posthaste token add ops --scope admin --expires-in '90 days'",
		Args:    exactly(1, "a token name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Name = args[0]
			for _, scope := range scopes {
				t.Scopes = append(t.Scopes, posthaste.Scope(scope))
			}
			if err := explicitZero(cmd, "expires-in"); err != nil {
				return err
			}
			if err := checkToken(&t, expiresAt); err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return addToken(ctx, a, e, t) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	needsStore(cmd, noTokens)
	flags.Var(words{&scopes}, "scope", "scope: read, read:payload, send, receive, operate, or admin for everything; may be repeated")
	flags.VarP(words{&t.Queues}, "queue", "q", "only this queue; may be repeated (default all queues)")
	flags.Var(duration{&t.ExpiresIn}, "expires-in", "how long the token is valid (default unlimited)")
	flags.StringVar(&expiresAt, "expires-at", "", "when the token expires, such as 2030-01-31T12:00:00Z")
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions(wordsOf(posthaste.Scopes()), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func checkToken(t *posthaste.Token, expiresAt string) error {
	if err := posthaste.CheckName("name", t.Name); err != nil {
		return err
	}
	if expiresAt != "" {
		at, err := wire.ParseTime(expiresAt)
		if err != nil {
			return posthaste.Invalidf("expires-at", "--expires-at %s", err)
		}
		t.ExpiresAt = at
	}
	if len(t.Scopes) == 0 {
		return posthaste.Invalidf("scope", "--scope is required; expected read, read:payload, send, receive, operate or admin")
	}
	return t.CheckStored()
}

func addToken(ctx context.Context, a *app, e posthaste.Store, t posthaste.Token) error {
	secret, err := e.CreateToken(ctx, t)
	if err != nil {
		return err
	}
	return a.print(map[string]string{"name": t.Name, "token": secret}, func(w *screen) {
		fmt.Fprintln(w, secret)
		fmt.Fprintf(a.stderr, "posthaste: the secret of token %s is not shown again; clients send it as Authorization: Bearer …\n", t.Name)
	})
}

func newTokenLs(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "ls", Short: "List tokens, without their secrets",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return listTokens(ctx, a, e) })
		},
	}
	db.shownFlag(cmd)
	return cmd
}

func listTokens(ctx context.Context, a *app, e posthaste.Store) error {
	tokens, err := e.Tokens(ctx)
	if err != nil {
		return err
	}
	shown := make([]wire.Token, len(tokens))
	for i, t := range tokens {
		shown[i] = wire.NewToken(t)
	}
	return a.print(listed{data: shown}, func(w *screen) {
		if len(tokens) == 0 {
			fmt.Fprintln(w, "no tokens; create one with: posthaste token add NAME --scope SCOPE")
			return
		}
		table(w, "NAME SCOPES QUEUES CREATED BY EXPIRES USED", func(row func(...any)) {
			for _, t := range tokens {
				queues, expires := strings.Join(t.Queues, ","), any(t.ExpiresAt)
				if queues == "" {
					queues = "all"
				}
				switch {
				case t.Expired:
					expires = styled{"expired", red}
				case t.ExpiresAt.IsZero():
					expires = "never"
				}
				row(t.Name, strings.Join(wordsOf(t.Scopes), ","), queues, t.CreatedAt, t.CreatedBy, expires, t.LastUsedAt)
			}
		})
	})
}

func dropToken(ctx context.Context, a *app, e posthaste.Store, name string) error {
	if err := e.RevokeToken(ctx, name); err != nil {
		return err
	}
	return a.print(map[string]string{"dropped": name}, func(w *screen) { fmt.Fprintf(w, "token %s dropped\n", name) })
}

func wordsOf[T ~string](all []T) []string {
	texts := make([]string, len(all))
	for i, each := range all {
		texts[i] = string(each)
	}
	return texts
}

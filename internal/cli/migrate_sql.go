package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/postgres"
)

// migrationFormat is how `migrate sql` prints the migrations.
type migrationFormat struct {
	name string
	// before and after enclose the script, begin and end each of its parts.
	before, after string
	begin, end    string
}

// atlasEnd is the end of a statement for Atlas. Functions contain semicolons.
const atlasEnd = "-- end of statement"

// migrationFormats are the formats. The first one is the default.
var migrationFormats = []migrationFormat{
	{name: "plain", before: "begin;\n\n", after: "\ncommit;\n"},
	{name: "goose", before: "-- +goose Up\n\n", begin: "-- +goose StatementBegin\n", end: "-- +goose StatementEnd\n",
		after: "\n-- There is no Down: `posthaste migrate down` removes the schema with all messages.\n"},
	{name: "atlas", before: `-- atlas:delimiter \n` + atlasEnd + "\n\n", end: atlasEnd + "\n"},
}

func newMigrateSQL(a *app) *cobra.Command {
	var options postgres.ScriptOptions
	var format string
	var names []string
	for _, f := range migrationFormats {
		names = append(names, f.name)
	}
	cmd := &cobra.Command{
		Use: "sql", Short: "Print the steps of migrate up as SQL, for goose, Atlas or a DBA",
		Long: `Print the steps of migrate up as SQL: the migrations after --from, functions and views,
roles and privileges, and the queue of e-mails. The command does not connect to a
database, and prints the same for each call of one version of the program.

The SQL runs in one transaction, and fails if the database has other migrations than
--from says. plain begins and commits the transaction itself; goose and atlas leave that
to these programs. Run the SQL of each new version of Posthaste, from the migration that
the database has (see migrate status), before you start that version.`,
		Example: `  posthaste migrate sql | psql --set ON_ERROR_STOP=1 "$DATABASE_URL"
  posthaste migrate sql --format goose > migrations/20260701120000_posthaste.sql`,
		Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			which := slices.IndexFunc(migrationFormats, func(f migrationFormat) bool { return f.name == format })
			if which < 0 {
				return posthaste.Invalidf("format", "--format must be %s, got %q", orList("", names), format)
			}
			parts, err := postgres.MigrationScript(options)
			if posthaste.CodeOf(err) == posthaste.CodeInvalid {
				return posthaste.Invalidf("from", "--%s", err.Error())
			}
			if err != nil {
				return err
			}
			last := len(parts) - 1
			parts = slices.Insert(parts, last, postgres.ScriptPart{Name: "queue " + email.Queue, SQL: emailsSQL})
			return migrationFormats[which].write(a.stdout, options.From, parts)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&format, "format", migrationFormats[0].name, orList("", names))
	flags.IntVar(&options.From, "from", 0, "newest migration that the database has; 0 for a database without the schema")
	flags.BoolVar(&options.NoRoles, "no-roles", false, noRolesHelp)
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// emailsSQL creates the queue of e-mails as makeEmails does.
var emailsSQL = fmt.Sprintf(`do $posthaste$
begin
  if not exists (select from posthaste.queues where queue = '%s') then
    perform posthaste.create_queue('%[1]s', '{"max_payload": %d}');
  end if;
end $posthaste$;
`, email.Queue, posthaste.MaxPayloadBytes)

func (f migrationFormat) write(w io.Writer, from int, parts []postgres.ScriptPart) error {
	text := f.before + fmt.Sprintf("-- The schema of Posthaste %s, from migration %d. Printed by: posthaste migrate sql\n", version(), from)
	for _, p := range parts {
		text += fmt.Sprintf("\n-- %s\n%s%s%s", p.Name, f.begin, p.SQL, f.end)
	}
	_, err := io.WriteString(w, text+f.after)
	return err
}

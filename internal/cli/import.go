package cli

import (
	"github.com/spf13/cobra"
)

func newImport(a *app) *cobra.Command {
	return newGroup("import", "Import messages from other systems", newImportOutbox(a), newImportSidekiq(a), newImportSQL(a))
}

package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

func newImport(a *app) *cobra.Command {
	return newGroup("import", "Import messages from other systems", newImportOutbox(a), newImportSidekiq(a), newImportSQL(a))
}

// parseQueueMap parses the values of --map.
func parseQueueMap(pairs []string) (map[string]string, error) {
	queues := map[string]string{}
	for _, pair := range pairs {
		at := strings.LastIndexByte(pair, '=') // other products allow it in names
		if at <= 0 || at == len(pair)-1 {
			return nil, posthaste.Invalidf("map", "--map must be OLD=NEW, got %q", pair)
		}
		queues[pair[:at]] = pair[at+1:]
	}
	return queues, nil
}

package cli

import (
	"fmt"
	"io"
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
		if queues[pair[:at]] != "" {
			return nil, posthaste.Invalidf("map", "--map names queue %q twice", pair[:at])
		}
		queues[pair[:at]] = pair[at+1:]
	}
	return queues, nil
}

// printUnmatched prints which names of --map are the queue of no job, perhaps by mistake.
func printUnmatched(w io.Writer, unmatched, queues []string) {
	for _, old := range unmatched {
		fmt.Fprintf(w, "--map: no jobs of queue %q found; the queues are %s\n", old, oneLine(strings.Join(queues, ", "), 1000))
	}
}

// maxShownRejections is the number of rejected rows or jobs that an import prints.
const maxShownRejections = 10

// printRejected prints which rows or jobs were rejected, and why, up to maxShownRejections.
func printRejected[T any](w io.Writer, all []T, told func(T) (what, why string)) {
	for i, x := range all {
		if i == maxShownRejections {
			fmt.Fprintf(w, "… and %d more were rejected; --json lists all\n", len(all)-i)
			break
		}
		what, why := told(x)
		fmt.Fprintf(w, "%s was rejected and left unchanged: %s\n", what, strings.TrimSpace(why))
	}
}

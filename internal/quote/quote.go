// Package quote quotes names and ids from callers in error texts.
package quote

import (
	"fmt"
	"strings"
)

// Name returns a name in single quotes, with quotes inside doubled as in PostgreSQL's
// quote_literal. Without that, a reader of the text, for example of a hint, could take a part
// of the name for the whole.
func Name(name string) string { return "'" + strings.ReplaceAll(name, "'", "''") + "'" }

// IDs lists ids, at most the first five, and says how many more there are.
func IDs[T ~int64](ids []T) string {
	var text strings.Builder
	for i, id := range ids[:min(len(ids), 5)] {
		if i > 0 {
			text.WriteString(", ")
		}
		fmt.Fprintf(&text, "%d", id)
	}
	if len(ids) > 5 {
		fmt.Fprintf(&text, " and %d more", len(ids)-5)
	}
	return text.String()
}

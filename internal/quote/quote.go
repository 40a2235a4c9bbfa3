// Package quote quotes names from callers in error texts.
package quote

import "strings"

// Name returns a name in single quotes, with quotes inside doubled as in PostgreSQL's
// quote_literal. Without that, a reader of the text, for example of a hint, could take a part
// of the name for the whole.
func Name(name string) string { return "'" + strings.ReplaceAll(name, "'", "''") + "'" }

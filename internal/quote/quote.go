// Package quote quotes what a caller gave within the text of an error.
package quote

import "strings"

// Name is a name, or another word of a caller's, in single quotes, with those within it
// doubled as PostgreSQL's quote_literal does: without them a reader of the text, such as
// that of hints, takes a part of the name for all of it.
func Name(name string) string { return "'" + strings.ReplaceAll(name, "'", "''") + "'" }

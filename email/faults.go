package email

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
)

// maxFaults bounds the number of faults in the text of one error.
const maxFaults = 20

// Faults returns all faults that [Parse] or [Email.Validate] found, each with its field, in
// the order of the fields. It returns nil if err is not one of their errors.
func Faults(err error) []*posthaste.Error {
	var e *posthaste.Error
	if !errors.As(err, &e) {
		return nil
	}
	var list faultList
	if errors.As(e.Cause, &list) {
		return list
	}
	return []*posthaste.Error{e}
}

// faultList is a list of faults. As an error it is the cause of the error that describes all
// of them.
type faultList []*posthaste.Error

// Error implements error.
func (f faultList) Error() string {
	texts := make([]string, 0, len(f))
	for i, e := range f {
		if i == maxFaults {
			texts = append(texts, fmt.Sprintf("and %d more", len(f)-maxFaults))
			break
		}
		texts = append(texts, e.Message)
	}
	return strings.Join(texts, "; ")
}

func (f *faultList) add(field, format string, args ...any) {
	*f = append(*f, invalid(field, format, args...))
}

// err returns nil, the single fault, or an error with the first fault's code and field and the
// text of all.
func (f faultList) err() error {
	switch len(f) {
	case 0:
		return nil
	case 1:
		return f[0]
	}
	return &posthaste.Error{Code: f[0].Code, Field: f[0].Field, Message: f.Error(), Cause: f}
}

// invalid returns a fault of one field. The text begins with the field's name, because a dead
// letter keeps only the text.
func invalid(field, format string, args ...any) *posthaste.Error {
	return fault(posthaste.CodeInvalid, field, format, args...)
}

func fault(code posthaste.Code, field, format string, args ...any) *posthaste.Error {
	text := fmt.Sprintf(format, args...)
	if field != "" {
		field = shown(field)
		text = field + " " + text
	}
	return &posthaste.Error{Code: code, Field: field, Message: text}
}

// index returns the name of a list item.
func index(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// headerField returns the field name of a header for an error. Unusual names are quoted and
// truncated, because they are untrusted input.
func headerField(name string) string { return "headers." + shown(name) }

// shown makes an untrusted name safe for an error text.
func shown(name string) string {
	if len(name) > MaxHeaderNameBytes {
		name = strings.ToValidUTF8(name[:MaxHeaderNameBytes], "") + "…"
	}
	if hasControl(name) || !utf8.ValidString(name) {
		return strings.Trim(fmt.Sprintf("%q", name), `"`)
	}
	return name
}

package smtp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
)

// deliveryError says why not all recipients were accepted.
type deliveryError struct {
	text  string
	cause error
}

// Error implements error.
func (e *deliveryError) Error() string { return e.text }

// Unwrap returns the error that ended the attempt early, or nil.
func (e *deliveryError) Unwrap() error { return e.cause }

// conclusion returns the result of the attempt: nil if all recipients are accepted, an error
// to retry if some are deferred, and otherwise a permanent error with the refused ones.
func (a *attempt) conclusion() error {
	byStatus := map[email.AnswerStatus][]string{}
	for _, r := range a.all {
		status := a.receipt.Recipients[r].Status
		byStatus[status] = append(byStatus[status], r)
	}
	deferred, refused, accepted := byStatus[email.Deferred], byStatus[email.Refused], byStatus[email.Accepted]
	switch {
	case len(deferred) > 0:
		text := fmt.Sprintf("deferred by %s: %s", a.receipt.Server, a.answers(deferred))
		if len(refused) > 0 {
			text += "; refused: " + a.answers(refused)
		}
		return &deliveryError{a.counted(text, accepted), a.cause}
	case len(refused) > 0:
		text := fmt.Sprintf("refused by %s: %s", a.receipt.Server, a.answers(refused))
		return posthaste.Permanent(&deliveryError{a.counted(text, accepted), a.cause})
	case len(accepted) == len(a.all):
		return nil
	}
	return errors.New("some recipients were not tried") // cannot happen: run records a result for each
}

func (a *attempt) counted(text string, accepted []string) string {
	if len(accepted) == 0 {
		return text
	}
	return fmt.Sprintf("%s; accepted for %d of %d recipients", text, len(accepted), len(a.all))
}

// Bounds of an error's text. The receipt has everything.
const (
	maxNamed   = 3
	maxAnswers = 4
)

// answers lists the answers, and groups recipients with the same one.
func (a *attempt) answers(recipients []string) string {
	var order []string
	named := map[string][]string{}
	for _, r := range recipients {
		answer := a.receipt.Recipients[r]
		text := answerText(answer.Code, answer.Enhanced, answer.Text)
		if named[text] == nil {
			order = append(order, text)
		}
		named[text] = append(named[text], r)
	}
	var parts []string
	for i, text := range order {
		if i == maxAnswers {
			parts = append(parts, fmt.Sprintf("and %d more answers", len(order)-maxAnswers))
			break
		}
		list := named[text]
		group := strings.Join(list[:min(len(list), maxNamed)], ", ")
		if len(list) > maxNamed {
			group += fmt.Sprintf(" and %d more", len(list)-maxNamed)
		}
		parts = append(parts, group+": "+text)
	}
	return strings.Join(parts, "; ")
}

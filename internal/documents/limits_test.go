//go:build unix

package documents_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
)

// limitRow is a row of the page about limits that names a constant.
var limitRow = regexp.MustCompile("(?m)^\\| .* \\| (.*) \\| `((?:posthaste|email)\\.Max[A-Za-z]+)` \\|$")

// limits are the constants that the page names, as it writes them.
var limits = map[string]string{
	"posthaste.MaxQueueNameBytes":  number(posthaste.MaxQueueNameBytes) + " bytes",
	"posthaste.MaxPayloadBytes":    size(posthaste.MaxPayloadBytes),
	"posthaste.MaxWordBytes":       number(posthaste.MaxWordBytes) + " bytes",
	"posthaste.MaxHeaderBytes":     size(posthaste.MaxHeaderBytes),
	"posthaste.MaxPriority":        "0 to " + number(posthaste.MaxPriority),
	"posthaste.MaxDedupeWindow":    days(posthaste.MaxDedupeWindow),
	"posthaste.MaxPlaces":          number(posthaste.MaxPlaces),
	"posthaste.MaxErrorChars":      number(posthaste.MaxErrorChars) + " characters",
	"posthaste.MaxCheckpointBytes": size(posthaste.MaxCheckpointBytes),
	"posthaste.MaxResultBytes":     size(posthaste.MaxResultBytes),
	"posthaste.MaxProgressChars":   number(posthaste.MaxProgressChars) + " characters",
	"posthaste.MaxLogBytes":        size(posthaste.MaxLogBytes),
	"posthaste.MaxKinds":           number(posthaste.MaxKinds),
	"posthaste.MaxReason":          number(posthaste.MaxReason) + " characters",
	"posthaste.MaxPause":           days(posthaste.MaxPause),
	"posthaste.MaxSearched":        number(posthaste.MaxSearched),
	"posthaste.MaxStatsKinds":      number(posthaste.MaxStatsKinds),
	"email.MaxSize":                size(email.MaxSize),
	"email.MaxRecipients":          number(email.MaxRecipients),
	"email.MaxAddressBytes":        fmt.Sprintf("%d bytes, of which %d before", email.MaxAddressBytes, email.MaxLocalBytes),
	"email.MaxNameBytes":           number(email.MaxNameBytes) + " bytes",
	"email.MaxSubjectBytes":        number(email.MaxSubjectBytes) + " bytes",
	"email.MaxHeaders":             number(email.MaxHeaders),
	"email.MaxAttachments":         number(email.MaxAttachments),
	"email.MaxFilenameBytes":       number(email.MaxFilenameBytes) + " bytes",
}

// TestLimitsAreThoseOfTheCode: the page about limits has the values of the constants.
func TestLimitsAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, row := range limitRow.FindAllStringSubmatch(read(t, "docs/reference/limits.md"), -1) {
		want, ok := limits[row[2]]
		if !ok || !strings.HasPrefix(row[1], want) {
			t.Errorf("the limit of %s is %q, want %q", row[2], row[1], want)
		}
		found[row[2]] = true
	}
	for name := range limits {
		if !found[name] {
			t.Errorf("docs/reference/limits.md does not have %s", name)
		}
	}
}

// size writes a number of bytes.
func size(bytes int) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

// number writes a number with commas.
func number(n int) string {
	if n >= 1000 {
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return fmt.Sprint(n)
}

// days writes a duration in days.
func days(d time.Duration) string { return number(int(d/(24*time.Hour))) + " days" }

package posthaste_test

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// In one call no message may replace another one, whichever of them says replace.
func TestCheckUniqueKeys(t *testing.T) {
	t.Parallel()
	const keep, replace = posthaste.KeepExisting, posthaste.ReplaceExisting
	for _, c := range []struct {
		exists  []posthaste.Exists
		keys    []string
		refused bool
	}{
		{[]posthaste.Exists{keep, keep, keep}, []string{"k", "k", "k"}, false},
		{[]posthaste.Exists{replace, replace}, []string{"k", "l"}, false},
		{[]posthaste.Exists{replace, keep}, []string{"k", "k"}, true},
		{[]posthaste.Exists{keep, replace}, []string{"k", "k"}, true},
		{[]posthaste.Exists{keep, keep, replace}, []string{"k", "k", "k"}, true},
		{[]posthaste.Exists{keep, "", replace}, []string{"k", "", "k"}, true},
		{[]posthaste.Exists{keep, replace}, []string{"k"}, false}, // the second has no key
	} {
		messages := make([]posthaste.Message, len(c.exists))
		for i, exists := range c.exists {
			messages[i].Unique = &posthaste.Unique{Exists: exists}
		}
		if err := posthaste.CheckUniqueKeys(messages, c.keys); (posthaste.CodeOf(err) == posthaste.CodeInvalid) != c.refused {
			t.Errorf("%v with the keys %v: %v", c.exists, c.keys, err)
		}
	}
}

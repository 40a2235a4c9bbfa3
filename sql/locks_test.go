package ledger_test

import (
	"regexp"
	"strings"
	"testing"

	ledger "github.com/posthaste-mq/posthaste/sql"
)

// Each family of advisory locks is listed where their keys are made, and no two are the same.
func TestLockFamiliesAreListed(t *testing.T) {
	t.Parallel()
	const home = "lock_key.sql"
	texts, err := ledger.Functions()
	if err != nil {
		t.Fatal(err)
	}
	header, _, _ := strings.Cut(texts[home], "create ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:[(,]|--)\s+(\d+) \w|\((\d+) \w`).FindAllStringSubmatch(header, -1) {
		family := m[1] + m[2]
		if listed[family] {
			t.Errorf("family %s is listed twice", family)
		}
		listed[family] = true
	}
	used := map[string]bool{"15": true} // postgres.Migrate, before the function exists
	for file, text := range texts {
		for _, m := range regexp.MustCompile(`lock_key\((\d+),`).FindAllStringSubmatch(text, -1) {
			used[m[1]] = true
			if !listed[m[1]] {
				t.Errorf("%s locks by family %s, which %s does not list", file, m[1], home)
			}
		}
	}
	for family := range listed {
		if !used[family] {
			t.Errorf("%s lists family %s, which is not used", home, family)
		}
	}
}

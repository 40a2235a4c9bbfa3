package ledger_test

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	ledger "github.com/posthaste-mq/posthaste/sql"
)

// Each family of advisory locks is listed where their keys are made, and no two
// are the same.
func TestLockFamiliesAreListed(t *testing.T) {
	t.Parallel()
	const home = "functions/lock_key.sql"
	text, err := fs.ReadFile(ledger.Files, home)
	if err != nil {
		t.Fatal(err)
	}
	header, _, _ := strings.Cut(string(text), "create ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:[(,]|--)\s+(\d+) \w|\((\d+) \w`).FindAllStringSubmatch(header, -1) {
		family := m[1] + m[2]
		if listed[family] {
			t.Errorf("family %s is listed twice", family)
		}
		listed[family] = true
	}
	used := map[string]bool{"15": true} // postgres.Migrate, before there is a function to ask
	files, err := fs.Glob(ledger.Files, "functions/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(ledger.Files, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`lock_key\((\d+),`).FindAllStringSubmatch(string(text), -1) {
			used[m[1]] = true
			if !listed[m[1]] {
				t.Errorf("%s locks by family %s, which %s does not list", file, m[1], home)
			}
		}
	}
	for family := range listed {
		if !used[family] {
			t.Errorf("%s lists family %s, which nobody locks by", home, family)
		}
	}
}

//go:build unix

package documents_test

import (
	"regexp"
	"strings"
	"testing"
)

var excerpt = regexp.MustCompile(`^not run: an excerpt of (\S+?)[,;]? `)

// TestExcerptsAreInTheirFiles: a block that is marked as an excerpt has lines that follow each
// other in its file, whatever their indentation.
func TestExcerptsAreInTheirFiles(t *testing.T) {
	t.Parallel()
	indentation := regexp.MustCompile(`(?m)^[ \t]+`)
	found := 0
	for _, file := range documents(t) {
		for _, b := range blocks(t, file) {
			if m := excerpt.FindStringSubmatch(b.mark); m != nil {
				found++
				if !strings.Contains(indentation.ReplaceAllString(read(t, m[1]), ""), indentation.ReplaceAllString(b.text, "")) {
					t.Errorf("%s is not in %s", b, m[1])
				}
			}
		}
	}
	if found == 0 {
		t.Error("no excerpts were found")
	}
}

// Package prose counts phrases that the style of this project avoids. Its test holds the
// number in each directory: it may fall, and never rise.
package prose

import (
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
)

// Rule is a phrase to avoid, and what to write instead.
type Rule struct {
	Name    string
	Instead string
	phrase  *regexp.Regexp
}

// Rules are all that are counted.
var Rules = []Rule{
	rule("who", `(?:^|[.:;,] )(?:Who|who) [a-z]+s\b|\b[Ww]ho(?:m|so)?ever\b`, "name the actor: the sender, the worker, the operator"),
	rule("somebody", `\b(?:[Nn]obody|[Ss]omebody|[Ee]verybody)\b`, "name the actor"),
	rule("for", `, for (?:it|they|the|an|that|this|these|what|no|there|then)\b`, "because, or since"),
	rule("what", `\b[Ww]hat (?:is|was|are|were|has|had|it|they)\b`, "name the thing: messages, rows, entries"),
	rule("anew", `\banew\b`, "again"),
	rule("mend", `\b[Mm]end(?:s|ed|ing)?\b`, "fix"),
	rule("none", `\bis none\b|\b[Tt]here is no such\b`, "unknown …; expected one of …; not found"),
	rule("refused", `\bis refused by\b`, "fails"),
	rule("dear", `\bdear(?:er|est)?\b`, "expensive"),
	rule("British", `\b[A-Za-z]*(?:haviour|olour|onour|avour|ealise|ganise|ecognise|entre|neighbour)[a-z]*\b`, "American spelling"),
}

func rule(name, phrase, instead string) Rule {
	return Rule{Name: name, Instead: instead, phrase: regexp.MustCompile(phrase)}
}

// Finding is one place that a rule found.
type Finding struct {
	Rule *Rule
	Line int
	Text string
}

// Find returns what the rules find in a file. Of Go it reads comments and strings, and of
// anything else the whole text.
func Find(name string, text []byte) []Finding {
	if strings.HasSuffix(name, ".go") {
		return findGo(text)
	}
	return findIn(string(text))
}

func findIn(text string) (all []Finding) {
	for i := range Rules {
		for _, at := range Rules[i].phrase.FindAllStringIndex(text, -1) {
			all = append(all, Finding{&Rules[i], 1 + strings.Count(text[:at[0]], "\n"), strings.TrimSpace(text[at[0]:at[1]])})
		}
	}
	return all
}

// findGo looks into a copy of the text in which all but comments and strings is blank: one
// call for each rule takes a tenth of the time of one for each comment.
func findGo(text []byte) []Finding {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	words := make([]byte, len(text))
	for i, c := range text {
		words[i] = ' '
		if c == '\n' {
			words[i] = c
		}
	}
	for {
		pos, kind, literal := s.Scan()
		switch kind {
		case token.EOF:
			return findIn(string(words))
		case token.COMMENT, token.STRING:
			at := file.Offset(pos)
			copy(words[at:], strings.Replace(literal, "// ", " . ", 1))
		}
	}
}

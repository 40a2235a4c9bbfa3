package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPageTellsWhatRunsWhen(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../" + testingDoc)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := findTests("../../..")
	if err != nil {
		t.Fatal(err)
	}
	want, err := withTable(string(page), tests)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != want {
		t.Errorf("%s does not tell what runs when; run: make testing-page", testingDoc)
	}
}

// nightOnly are the ids without a test on each change.
var nightOnly = map[string]string{
	"BK3": "pg_upgrade of a whole cluster",
	"DR1": "each quickstart downloads a PostgreSQL of its own; TestReadme runs their commands on each change",
	"DR4": "a release is built",
	"DR5": "a release is built twice without caches",
	"NP6": "speed through a broker",

	"NJ1":  "three NATS servers that are killed for a minute",
	"NJ2":  "three NATS servers that are cut off for a minute",
	"NJ3":  "three NATS servers that are killed at once",
	"NJ4":  "three NATS servers, and delays that are measured",
	"NJ7":  "a relay into three NATS servers, both killed for minutes",
	"NJ10": "a NATS stream that is filled for a minute",
}

// Each acceptance id has a test on each change.
func TestNoPromiseLosesItsTest(t *testing.T) {
	t.Parallel()
	tests, err := findTests("../../..")
	if err != nil {
		t.Fatal(err)
	}
	change := map[string]bool{}
	for _, test := range tests {
		if test.id != "" {
			change[test.id] = change[test.id] || !test.night
		}
	}
	if len(change) < 40 {
		t.Errorf("only %d ids were found", len(change))
	}
	for id, there := range change {
		if there == (nightOnly[id] != "") {
			t.Errorf("that a test of %s runs on each change is %t, and nightOnly says otherwise", id, there)
		}
	}
}

func TestNightlyTestsAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := "package p\n" +
		"func TestDS1_A(t *testing.T) {\n\tt.Parallel()\n\ttestrun.Nightly(t, \"long\")\n}\n" +
		"func TestDS1_B(t *testing.T) {\n\tt.Run(\"x\", func(t *testing.T) { testrun.Nightly(t, \"longer\") })\n}\n" +
		"func TestC(t *testing.T) {}\n"
	if err := os.WriteFile(filepath.Join(dir, "p_test.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	tests, err := findTests(dir)
	if err != nil {
		t.Fatal(err)
	}
	text := table(tests)
	for _, want := range []string{"| DS1 | `TestDS1_B` (.) | `TestDS1_A` (.), further cases of `TestDS1_B` (.) |", "| `TestDS1_A` (.) | long |", "| `TestDS1_B` (.), some cases | longer |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "TestC") {
		t.Error("a test without an id that runs on each change is listed")
	}
}

package fence

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestCounts(t *testing.T) {
	t.Parallel()
	long := func(lines int) string { return "func f() {" + strings.Repeat("\n", lines-1) + "}\n" }
	found, err := count(fstest.MapFS{
		"a/exact.go":         {Data: []byte("package a\n" + long(maxFunctionLines))},
		"a/long.go":          {Data: []byte("package a\n" + long(maxFunctionLines+7))},
		"a/long_test.go":     {Data: []byte("package a\n" + long(maxFunctionLines+1) + long(maxFunctionLines+50))},
		"a/exactfile.go":     {Data: []byte("package a\n" + strings.Repeat("\n", maxFileLines-1))},
		"a/longfile.go":      {Data: []byte("package a\n" + strings.Repeat("\n", maxFileLines))},
		"a/sleep.go":         {Data: []byte("package a\nfunc s() { time.Sleep(1) }\n")},
		"a/sleep_test.go":    {Data: []byte("package a\nvar s = time.Sleep\nfunc f() { time.Sleep(1); other.Sleep(2) }\n")},
		"atest/support.go":   {Data: []byte("package atest\nimport \"testing\"\nfunc s(*testing.T) { time.Sleep(1) }\n")},
		"a/testdata/skip.go": {Data: []byte("package a\n" + long(maxFunctionLines+7))},
		"own/go.mod":         {Data: []byte("module own\n")},
		"own/main.go":        {Data: []byte("package main\n" + long(maxFunctionLines+7))},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := found["a"]
	if len(a.longFunctions) != 1 || a.longFunctions[0] != "a/long.go:2:1: f has 67 lines" || a.longest != 67 {
		t.Errorf("long functions: %v, the longest with %d lines", a.longFunctions, a.longest)
	}
	if len(a.longTestFunctions) != 2 {
		t.Errorf("long functions of tests: %v", a.longTestFunctions)
	}
	if len(a.longFiles) != 1 || a.longFiles[0] != "a/longfile.go has 501 lines" {
		t.Errorf("long files: %v", a.longFiles)
	}
	if len(a.sleeps) != 2 || len(found["atest"].sleeps) != 1 {
		t.Errorf("sleeps: %v and %v", a.sleeps, found["atest"].sleeps)
	}
	if found["a/testdata"] != nil || found["own"] != nil {
		t.Errorf("counted folders that are skipped: %v", found)
	}
}

package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

// told is a hint as it stands in the code, with the error that has it.
type told struct {
	where string
	error posthaste.Error
	// finding says that it is of the doctor.
	finding bool
}

// foreign are words of interfaces, which hints for others must not have.
var foreign = map[string]*regexp.Regexp{
	"SQL":              regexp.MustCompile(`\bposthaste\.[a-z]|\bview posthaste|=>|\bto_jsonb\b|\b[a-z]+_[a-z]+ '\d`),
	"HTTP":             regexp.MustCompile(`/v1/|\b(GET|PUT|POST|PATCH|DELETE) /|\{"`),
	"the command line": regexp.MustCompile(`\bposthaste (` + strings.Join(names(newProgram(nil).root), "|") + `)\b|(^|\s)--[a-z]`),
	"Go":               regexp.MustCompile(`\b(posthaste|postgres|redis|worker)\.[A-Z]|\b(With|set |Set )[A-Z][a-z]+[A-Za-z]*\b`),
}

// programOnly are remedies that only the program has, so HTTP names them too.
var programOnly = regexp.MustCompile("`?posthaste (migrate|rebase|token|version)\\b[^,;)`]*`?|--polling-only")

// oneInterface are the files of functions whose errors reach SQL alone, or not HTTP.
var oneInterface = map[string]string{
	"give_up.sql":     "is called by SQL alone",
	"send_many.sql":   "is called by SQL alone",
	"option_time.sql": "the interfaces read times themselves",
	"option_rate.sql": "the interfaces read rates themselves",
	"doctor_ring.sql": "a claim that cannot be rescued is given up by SQL alone",
	"token_add.sql":   "no API makes tokens",
	"token_drop.sql":  "no API drops tokens",
	"sink.go":         "the error is of a mail that SQL sent, and is stored with it", // in sink/smtp
}

// interfacesOf returns the interfaces that show the errors of a file of Go.
func interfacesOf(path string) []wire.Interface {
	path, _, _ = strings.Cut(strings.TrimPrefix(filepath.ToSlash(path), "../../"), ":") // the line
	folder, _, _ := strings.Cut(path, "/")
	switch {
	case strings.HasPrefix(path, "server/") && path != "server/listen.go" && path != "server/limits.go": // those of starting it
		return []wire.Interface{wire.HTTP}
	case slices.Contains([]string{"server", "internal", "source", "relay", "broker", "sink", "worker", "telemetry", "cmd"}, folder) && !strings.HasPrefix(path, "internal/wire/") && !strings.HasPrefix(path, "internal/jsoncheck/"),
		path == "postgres/migrate_objects.go":
		return []wire.Interface{wire.CLI}
	}
	return []wire.Interface{wire.HTTP, wire.CLI}
}

// A person is told what to do in the words of the interface at hand.
func TestJB8_HintsSpeakTheirInterface(t *testing.T) {
	t.Parallel()
	openapi, err := os.ReadFile("../../server/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(goHints(t), sqlHints(t), sqlFindings(t), shownHints())
	root := newProgram(nil).root
	for _, x := range all {
		if oneInterface[filepath.Base(strings.SplitN(x.where, ":", 2)[0])] != "" {
			continue
		}
		for _, by := range interfacesOf(x.where) {
			hint := hintOf(x, by)
			if fault := faultOf(root, string(openapi), hint, by); fault != "" {
				t.Errorf("%s: for %s, the error %q of %s %s has the hint %q: %s", x.where, name(by), x.error.Message, x.error.Code, x.error.Field, hint, fault)
			}
			if by == wire.HTTP { // and as the command line shows it when it uses a server
				answered := x
				answered.error.Hint = hint
				again := hintOf(answered, wire.CLI)
				if fault := faultOf(root, string(openapi), again, wire.CLI); fault != "" {
					t.Errorf("%s: of a server, the error %q of %s %s has the hint %q: %s", x.where, x.error.Message, x.error.Code, x.error.Field, again, fault)
				}
			}
		}
	}
	if len(all) < 300 {
		t.Errorf("only %d hints were found", len(all))
	}
}

func name(by wire.Interface) string {
	return map[wire.Interface]string{wire.HTTP: "HTTP", wire.CLI: "the command line"}[by]
}

func hintOf(x told, by wire.Interface) string {
	if x.finding {
		return wire.NewFindings([]posthaste.Finding{{Hint: x.error.Hint}}, by)[0].Hint
	}
	return wire.Hint(&x.error, by)
}

// foreignWord returns a word in a text that other interfaces have, and which, or "".
func foreignWord(text string, by wire.Interface) string {
	if by == wire.HTTP {
		text = programOnly.ReplaceAllString(text, "")
	}
	for other, words := range foreign {
		if other != name(by) && words.MatchString(text) {
			return fmt.Sprintf("%q is of %s", words.FindString(text), other)
		}
	}
	return ""
}

// endpoints matches the paths of openapi.yaml.
func endpoints(openapi string) *regexp.Regexp {
	var paths []string
	for _, path := range regexp.MustCompile(`(?m)^  (/v1/\S+):$`).FindAllStringSubmatch(openapi, -1) {
		paths = append(paths, regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(path[1], "[^/]+"))
	}
	return regexp.MustCompile("^(" + strings.Join(paths, "|") + ")$")
}

// faultOf returns the fault of a hint in an interface, or "".
func faultOf(root *cobra.Command, openapi, hint string, by wire.Interface) string {
	if word := foreignWord(hint, by); word != "" {
		return word
	}
	for _, path := range regexp.MustCompile(`(?:GET|PUT|POST|PATCH|DELETE) (/v1/[^\s;,)?]+)`).FindAllStringSubmatch(hint, -1) {
		if !endpoints(openapi).MatchString(path[1]) {
			return "there is no " + path[0]
		}
	}
	for _, said := range regexp.MustCompile("\\bposthaste ((?:"+strings.Join(names(root), "|")+")\\b(?: [a-z]+)?)([^;`,]*)").FindAllStringSubmatch(hint, -1) {
		command, rest, err := root.Find(strings.Fields(said[1]))
		if err != nil || command == root || len(rest) > 0 && command.HasSubCommands() && command.Name() != "worker" {
			return "there is no command posthaste " + said[1]
		}
		for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(said[2], -1) {
			if command.Flags().Lookup(flag[1]) == nil && root.PersistentFlags().Lookup(flag[1]) == nil {
				return fmt.Sprintf("%s has no flag --%s", command.CommandPath(), flag[1])
			}
		}
	}
	return ""
}

// shownHints are errors that have no hint of their own, and get one by the interface.
func shownHints() (all []told) {
	for field, message := range map[string]string{"queue": `queue "a" does not exist`, "schedule": `schedule "a" does not exist`, "ids": `1 is not a dead letter`} {
		all = append(all, told{"../../operator.go", posthaste.Error{Code: posthaste.CodeNotFound, Field: field, Message: message}, false})
	}
	all = append(all, told{"../../operator.go", posthaste.Error{Code: posthaste.CodeConflict, Field: "name", Message: `queue "a" exists with different options`}, false})
	return append(all, told{"../../operator.go", posthaste.Error{Code: posthaste.CodeUnsupported, Field: "key", Message: `queue "a" does not support pausing keys`}, false})
}

// The usage errors of commands, too.
func TestJB8_UsageErrorsSpeakTheirInterface(t *testing.T) {
	t.Parallel()
	root := newProgram(nil).root
	tried, seen := 0, map[string]bool{}
	try := func(args ...string) {
		t.Helper()
		_, stderr, code := newProgram(nil).run(t.Context(), args...)
		tried++
		if fault := foreignWord(stderr, wire.CLI); code != exitUsage || fault != "" {
			t.Errorf("%q ends with %d and prints %q: %s", args, code, stderr, fault)
		}
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		if !cmd.HasParent() || cmd.Name() == "help" || strings.HasPrefix(cmd.CommandPath(), "posthaste completion") {
			return
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		try(append(path, "--nonsense")...)
		if cmd.HasAvailableSubCommands() && cmd.Flags().Lookup("database-url") == nil {
			try(path...)
			try(append(path, "nonsense")...)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); kind != "string" && kind != "stringArray" && f.Name != "help" && !seen[f.Name] {
				seen[f.Name] = true
				try(append(path, "--"+f.Name+`=a"b`)...)
			}
		})
	}
	walk(root)
	if tried < 150 {
		t.Errorf("only %d usage errors were tried", tried)
	}
}

// The tests above find a hint in the words of another interface.
func TestForeignHintsAreFound(t *testing.T) {
	t.Parallel()
	root := newProgram(nil).root
	const openapi = "\n  /v1/queues/{queue}:\n"
	for hint, want := range map[string][2]bool{ // wrong on HTTP, on the command line
		"create it: select posthaste.create_queue('a')":         {true, true},
		"the view posthaste.tokens lists them":                  {true, true},
		"use posthaste.WithActor":                               {true, true},
		"set All to select all":                                 {true, true},
		"pass unnamed_too => true":                              {true, true},
		"create it with PUT /v1/queues/a":                       {false, true},
		"GET /v1/nothing lists them":                            {true, true},
		`{"all": true} selects all`:                             {false, true},
		"create it with: posthaste queue create a":              {true, false},
		"create it with: posthaste queue make a":                {true, true},
		"a user named posthaste and no other":                   {false, false},
		"posthaste queue create a --retention 5m":               {true, false},
		"posthaste queue create a --nonsense 5m":                {true, true},
		"run `posthaste migrate up`":                            {false, false},
		"select one with --queue":                               {true, false},
		"split the ids over several calls, for example '7 day'": {false, false},
	} {
		for _, by := range []wire.Interface{wire.HTTP, wire.CLI} {
			if got := faultOf(root, openapi, hint, by); (got != "") != want[by] {
				t.Errorf("%q for %s: %q", hint, name(by), got)
			}
		}
	}
}

// goHints returns the hints of errors and findings in the Go code.
func goHints(t *testing.T) (all []told) {
	files := token.NewFileSet()
	var parsed []*ast.File
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "examples" || d.Name() == ".git"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		parsed = append(parsed, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	takes := hintParameters(parsed)
	for _, file := range parsed {
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				return true
			}
			x := told{where: files.Position(n.Pos()).String()}
			switch n := n.(type) {
			case *ast.CompositeLit:
				x.fill(n)
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if strings.EqualFold(lastName(left), "hint") && len(n.Rhs) == len(n.Lhs) {
						x.error.Hint = literals(n.Rhs[i])
					}
				}
			case *ast.CallExpr:
				if at, ok := takes[lastName(n.Fun)]; ok && at < len(n.Args) {
					x.error.Hint = literals(n.Args[at])
				}
			}
			if strings.Trim(x.error.Hint, "NAME") != "" {
				all = append(all, x)
			}
			return true
		})
	}
	return all
}

// fill takes the fields of an error or a finding.
func (x *told) fill(literal *ast.CompositeLit) {
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch lastName(pair.Key) {
		case "Code":
			snake := regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(strings.TrimPrefix(lastName(pair.Value), "Code"), "${1}_$2")
			x.error.Code = posthaste.Code(strings.ToLower(snake))
		case "Field":
			x.error.Field = literals(pair.Value)
		case "Message":
			x.error.Message = literals(pair.Value)
		case "Hint":
			x.error.Hint = literals(pair.Value)
		case "Check":
			x.finding = true
		}
	}
}

// hintParameters returns the functions that take a hint, and as which argument.
func hintParameters(files []*ast.File) map[string]int {
	takes := map[string]int{}
	add := func(name string, f *ast.FuncType) {
		at := 0
		for _, field := range f.Params.List {
			for _, parameter := range field.Names {
				if parameter.Name == "hint" {
					takes[name] = at
				}
				at++
			}
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				add(n.Name.Name, n.Type)
			case *ast.AssignStmt:
				if f, ok := n.Rhs[0].(*ast.FuncLit); ok {
					add(lastName(n.Lhs[0]), f.Type)
				}
			}
			return true
		})
	}
	return takes
}

// lastName returns the last identifier of an expression such as posthaste.CodeInvalid, or "".
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// verb matches a part of a format that is not known.
var verb = regexp.MustCompile(`%[a-zL]`)

// literals returns the text of an expression, with NAME for its unknown parts.
func literals(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return verb.ReplaceAllString(text, "NAME")
	case *ast.BinaryExpr:
		return literals(e.X) + literals(e.Y)
	case *ast.ParenExpr:
		return literals(e.X)
	case *ast.CallExpr:
		if lastName(e.Fun) == "Sprintf" {
			return literals(e.Args[0])
		}
	}
	return "NAME"
}

// quoted matches a literal in SQL.
var quoted = regexp.MustCompile(`'((?:[^']|'')*)'`)

// literal returns the first text in parentheses that a pattern finds, without doubled quotes.
func literal(in, pattern string) string {
	if found := regexp.MustCompile(pattern).FindStringSubmatch(in); found != nil {
		return strings.ReplaceAll(found[1], "''", "'")
	}
	return ""
}

// sqlHints returns the hints of errors in the SQL functions.
func sqlHints(t *testing.T) (all []told) {
	raise := regexp.MustCompile(`(?s)raise exception using ([^;]*);|hint := ([^;]*);`)
	codes := map[string]posthaste.Code{"PH400": posthaste.CodeInvalid, "PH404": posthaste.CodeNotFound, "PH409": posthaste.CodeConflict, "PH501": posthaste.CodeUnsupported, "PH503": posthaste.CodeRefused}
	texts, err := ledger.Functions()
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range texts {
		for _, raised := range raise.FindAllStringSubmatch(text, -1) {
			x := told{where: file, error: posthaste.Error{Code: codes[literal(raised[1], `errcode = '(PH\d+)'`)], Message: literal(raised[1], `message = (?:format\()?'((?:[^']|'')*)'`)}}
			_, hint, _ := strings.Cut(raised[1], "hint = ")
			for _, part := range quoted.FindAllStringSubmatch(hint+raised[2], -1) {
				x.error.Hint += verb.ReplaceAllString(strings.ReplaceAll(part[1], "''", "'"), "NAME") + " "
			}
			fields := regexp.MustCompile(`'([a-z_]+)'`).FindAllStringSubmatch(literal(raised[1], `column = ([^,]*)`), -1)
			if fields == nil {
				fields = [][]string{{"", ""}}
			}
			for _, field := range fields {
				if x.error.Field = field[1]; x.error.Hint != "" {
					all = append(all, x)
				}
			}
		}
	}
	return all
}

// sqlFindings returns the texts of the checks of the doctor that are written in SQL. Those that
// begin like a statement are not shown.
func sqlFindings(t *testing.T) (all []told) {
	texts, err := ledger.Functions()
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range texts {
		if !strings.HasPrefix(file, "doctor_") {
			continue
		}
		for _, part := range quoted.FindAllStringSubmatch(regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(text, ""), -1) {
			hint := strings.ReplaceAll(strings.ReplaceAll(part[1], "''", "'"), "%L", "'a'")
			if strings.Contains(hint, " ") && !regexp.MustCompile(`^(select \w+, \w+ from|select \w+ from|posthaste\.\w+\()`).MatchString(hint) {
				all = append(all, told{where: file, finding: true, error: posthaste.Error{Hint: strings.ReplaceAll(hint, "%s", "NAME")}})
			}
		}
	}
	return all
}

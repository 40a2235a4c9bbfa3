package redis

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

var (
	namedKeys  = regexp.MustCompile(`(?m)^local (.+) = unpack\(KEYS(?:, (\d+), (\d+))?\)`)
	keyPlaces  = regexp.MustCompile(`(?m)^local (AT_.+) = ([\d, ]+)$`)
	bareNumber = regexp.MustCompile(`KEYS\[\d|KEYS\[[\w.]*at \+ \d|unpack\(KEYS, at \+ \d|ARGV\[\d`)
	restBegins = regexp.MustCompile(`for i = (\d+)(?: \+ n)?, (?:\d+ \+ n|#ARGV)`)
)

// scriptNames are the names of the scripts that the engine runs.
func scriptNames(t *testing.T) (names []string) {
	t.Helper()
	files, err := scriptFiles.ReadDir("scripts")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".lua"); strings.HasPrefix(file(name), "#!lua") {
			names = append(names, name)
		}
	}
	return names
}

// keysNamed returns the places, from 1, that a script or a part of one gives names of keys.
func keysNamed(t *testing.T, text string) map[int]string {
	t.Helper()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	all := map[int]string{}
	for _, m := range namedKeys.FindAllStringSubmatch(text, -1) {
		names, first := strings.Split(m[1], ", "), 1
		if m[2] != "" {
			if first = number(m[2]); number(m[3]) != first+len(names)-1 {
				t.Errorf("%q has %d names", m[0], len(names))
			}
		}
		for i, name := range names {
			all[first+i] = name
		}
	}
	for _, m := range keyPlaces.FindAllStringSubmatch(text, -1) {
		names, places := strings.Split(m[1], ", "), strings.Split(m[2], ", ")
		if len(names) != len(places) {
			t.Fatalf("%q has %d names", m[0], len(names))
		}
		for i, name := range names {
			all[number(places[i])] = strings.TrimPrefix(name, "AT_")
		}
	}
	return all
}

// Scripts name their keys and arguments in their headers, and use the names alone. The names
// of a queue's keys are in the order in which keys.go builds them.
func TestScriptHeaders(t *testing.T) {
	t.Parallel()
	files, err := scriptFiles.ReadDir("scripts")
	if err != nil {
		t.Fatal(err)
	}
	order := slices.Concat([]string{""}, ofQueue, []string{"bell"}, ofKeyed)
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".lua")
		text := file(name)
		if found := bareNumber.FindString(text); found != "" {
			t.Errorf("%s counts its keys or arguments itself: %s", name, found)
		}
		if s := load(name).read(); s.more {
			for _, m := range restBegins.FindAllStringSubmatch(text, -1) {
				if m[1] != strconv.Itoa(len(s.names)+1) {
					t.Errorf("%s names %d arguments, and the rest begins at %s", name, len(s.names), m[1])
				}
			}
		}
		if strings.HasPrefix(text, "#!lua") && !strings.Contains(text, "-- includes: keys") {
			continue // its keys are not those of a queue: see TestScriptsGetTheKeysTheyName
		}
		for place, key := range keysNamed(t, text) {
			if place >= len(order) || strings.ReplaceAll(strings.ToLower(key), "_", ".") != order[place] {
				t.Errorf("%s calls key %d %s", name, place, key)
			}
		}
	}
}

// plainHook is a hook that changes nothing, for hooks that only see single commands.
type plainHook struct{}

// DialHook implements [goredis.Hook].
func (plainHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessPipelineHook implements [goredis.Hook].
func (plainHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// keysSeen is a hook that compares the keys that each script gets with the names that it
// gives them.
type keysSeen struct {
	plainHook
	t     *testing.T
	names map[string]string         // script by hash
	keys  map[string]map[int]string // by script
	seen  map[string]bool
}

// ProcessHook implements [goredis.Hook].
func (k *keysSeen) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if args := cmd.Args(); args[0] == "evalsha" {
			if script, ok := k.names[args[1].(string)]; ok {
				k.seen[script] = true
				for place, name := range k.keys[script] {
					if n := args[2].(int); place <= n && (place <= len(ofQueue)+1 || strings.HasSuffix(args[2+len(ofQueue)+2].(string), ":"+ofKeyed[0])) {
						k.compare(script, place, name, args[2+place].(string))
					}
				}
			}
		}
		return next(ctx, cmd)
	}
}

func (k *keysSeen) compare(script string, place int, name, key string) {
	_, what, _ := strings.Cut(key, "}:")
	if further, ok := strings.CutPrefix(what, "of:"); ok {
		_, what, _ = strings.Cut(further, ":")
	}
	if chart, number, ok := strings.Cut(what, ":"); ok && strings.Trim(number, "0123456789") == "" {
		what = chart
	}
	if name == "TALLY" && what == "meta" {
		return // of the subscription that the queue is born with
	}
	if strings.ReplaceAll(strings.ToLower(name), "_", ".") != what {
		k.t.Errorf("%s calls key %d %s, and is given %s", script, place, name, key)
	}
}

// Each key that a script is given is the one that its header names.
func TestScriptsGetTheKeysTheyName(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: start(t).Address(), MaxRetries: -1})
	defer client.Close()
	k := &keysSeen{t: t, names: map[string]string{}, keys: map[string]map[int]string{}, seen: map[string]bool{}}
	for _, name := range scriptNames(t) {
		s := load(name)
		k.keys[name] = keysNamed(t, s.read().text)
		k.names[s.read().sha], k.names[s.several().read().sha] = name, name
	}
	client.AddHook(k)
	liveShortly(t, client)
	for _, name := range writers(t) {
		if !k.seen[name] {
			t.Errorf("script %s was not run", name)
		}
	}
}

// An argument that is added, left out or moved in Go or in a script alone makes the first
// call panic.
func TestArgumentsMatchTheScript(t *testing.T) {
	t.Parallel()
	fixed := newText("local number, rules = unpack(ARGV)\n")
	open := newText("local number, rules = unpack(ARGV, 1, 2)\nfor i = 3, #ARGV do end\n")
	for name, c := range map[string]struct {
		of   *scriptText
		args arguments
		ok   bool
	}{
		"the same":   {fixed, arguments{{"number", 1}, {"rules", 2}}, true},
		"left out":   {fixed, arguments{{"number", 1}}, false},
		"added":      {fixed, arguments{{"number", 1}, {"rules", 2}, {"most", 3}}, false},
		"no name":    {fixed, arguments{{"number", 1}, {"rules", 2}, {is: 3}}, false},
		"swapped":    {fixed, arguments{{"rules", 1}, {"number", 2}}, false},
		"rest":       {open, arguments{{"number", 1}, {"rules", 2}, {is: 3}, {is: 4}}, true},
		"no rest":    {open, arguments{{"number", 1}, {"rules", 2}}, true},
		"named rest": {open, arguments{{"number", 1}, {"rules", 2}, {"most", 3}}, false},
	} {
		func() {
			defer func() {
				if said := recover(); (said == nil) != c.ok {
					t.Errorf("%s: %v", name, said)
				}
			}()
			c.of.check(c.args)
		}()
	}
}

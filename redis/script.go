package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // by which Redis names scripts
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is one atomic step. It is read when it is first used: programs that use no Redis
// must not pay for all scripts when they start.
type script struct{ read func() *scriptText }

// scriptText is the text of a script. Redis knows it by its hash, so that programs of two
// versions never call each other's.
type scriptText struct {
	text, sha string
	names     []string // of its arguments, in order
	more      bool     // further arguments follow those that have names
}

// arg is an argument of a script. Its name is the one that the script gives it, or "" for
// those that follow the named ones.
type arg struct {
	name string
	is   any
}

type arguments []arg

// header is where a script names its arguments. It has a bound if more follow.
var header = regexp.MustCompile(`(?m)^local (.+) = unpack\(ARGV(, 1, \d+)?\)$`)

// file returns the text of a script's file.
func file(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// load reads a script and inserts the files that it includes after its header.
func load(name string) script {
	return script{sync.OnceValue(func() *scriptText { return include(file(name)) })}
}

// include returns the script with a text, in which it inserts the files that the text includes.
func include(text string) *scriptText {
	const mark = "-- includes: "
	if at := strings.Index(text, mark); at >= 0 {
		line, rest, _ := strings.Cut(text[at:], "\n")
		var included strings.Builder
		for _, other := range strings.Split(strings.TrimPrefix(line, mark), ", ") {
			included.WriteString(file(other))
		}
		text = text[:at] + included.String() + rest
	}
	return newText(guarded(text))
}

func newText(text string) *scriptText {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	s := &scriptText{text: text, sha: hex.EncodeToString(sum[:])}
	if found := header.FindStringSubmatch(text); found != nil {
		s.names, s.more = strings.Split(found[1], ", "), found[2] != ""
	} else {
		s.more = strings.Contains(text, "#ARGV")
	}
	return s
}

// check panics unless args are those that the script names, in its order.
func (s *scriptText) check(args arguments) {
	for i := range max(len(args), len(s.names)) {
		given, wanted := "nothing", "nothing"
		if i < len(args) {
			given = args[i].name
		}
		if i < len(s.names) {
			wanted = s.names[i]
		} else if s.more {
			wanted = ""
		}
		if given != wanted {
			panic(fmt.Sprintf("argument %d of a script is %q, and the script expects %q: its arguments are %q", i+1, given, wanted, s.names))
		}
	}
}

// calls matches the commands in a script, except those that may fail (redis.pcall).
var calls = regexp.MustCompile(`(?:^|[^p])(?:call|many)\('([A-Z]+)'`)

// called returns the commands in a script.
func called(text string) map[string]bool {
	names := map[string]bool{}
	for _, call := range calls.FindAllStringSubmatch(text, -1) {
		names[call[1]] = true
	}
	return names
}

// guarded makes a script that writes check first that the user may run all its commands.
// Otherwise Redis would run it up to the denied command, and keep the writes before it.
func guarded(text string) string {
	head, body, _ := strings.Cut(text, "\n")
	if strings.Contains(head, "no-writes") {
		return text
	}
	guard := file("may_all")
	for _, name := range slices.Sorted(maps.Keys(called(body))) {
		guard += "may(" + strings.Join(command("'"+name+"'", "KEYS[1]"), ", ") + ")\n"
	}
	return head + "\n" + guard + body
}

// several returns a script that runs s for each of several queues.
func (s script) several() script {
	head, body, _ := strings.Cut(s.read().text, "\n")
	all := newText(head + "\nlocal function one(KEYS, ARGV)\n" + body + "\nend\n" + file("several"))
	all.names, all.more = nil, true
	return script{func() *scriptText { return all }}
}

// The scripts.
var (
	againScript            = load("again")
	armScript              = load("arm")
	asideScript            = load("aside")
	beatScript             = load("beat")
	buryScript             = load("bury")
	claimKeyedScript       = load("claim_keyed")
	claimScript            = load("claim")
	clearScript            = load("clear")
	countScript            = load("count")
	dropScript             = load("drop")
	editScript             = load("edit")
	enrollScript           = load("enroll")
	eraseScript            = load("erase")
	eraseErrorsScript      = load("erase_errors")
	expireEnrollmentScript = load("expire_enrollment")
	extendScript           = load("extend")
	fillScript             = load("fill")
	forgetScript           = load("forget")
	forgetUniqueScript     = load("forget_unique")
	pauseKeyScript         = load("pause_key")
	leaveScript            = load("leave")
	listScript             = load("list")
	makeScript             = load("make")
	mayScript              = load("may")
	noteScript             = load("note")
	pauseIndexScript       = load("pause_index")
	pauseScript            = load("pause")
	purgeScript            = load("purge")
	recordActionsScript    = load("record_actions")
	removeEnrollmentScript = load("remove_enrollment")
	renewScript            = load("renew")
	repairScript           = load("repair")
	reportScript           = load("report")
	rescueScript           = load("rescue")
	reviseScript           = load("revise")
	sampleScript           = load("sample")
	scheduleScript         = load("schedule")
	sendScript             = load("send")
	sendUniqueScript       = script{sync.OnceValue(sendingUnique)}
	settleScript           = load("settle")
	subscribeScript        = load("subscribe")
	tellScript             = load("tell")
	tokenScript            = load("token")
	unsettledScript        = load("unsettled")
	withdrawScript         = load("withdraw")
	workerScript           = load("worker")
)

// sendingUnique returns send.lua for messages with unique keys. It looks at its permissions for
// twice as many commands, which other messages need not pay for.
func sendingUnique() *scriptText {
	return include(strings.NewReplacer("-- includes: keys\n", "-- includes: keys, words, unique\n", "-- taken\n", file("taken")).Replace(file("send")))
}

// once is a command that the client must not repeat after its reply was lost, because it may
// have been done. The client still follows the redirects of a cluster.
type once struct{ *goredis.Cmd }

// NoRetry implements [goredis.Cmder].
func (once) NoRetry() bool { return true }

// run runs a script. It sends the text if Redis does not have the script, which Redis reports
// before it has done anything.
func (s script) run(ctx context.Context, client goredis.UniversalClient, keys []string, args arguments) (any, error) {
	text := s.read()
	text.check(args)
	reply, err := eval(ctx, client, "evalsha", text.sha, keys, args)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		reply, err = eval(ctx, client, "eval", text.text, keys, args)
	}
	return reply, err
}

func eval(ctx context.Context, client goredis.UniversalClient, name, script string, keys []string, args arguments) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, script, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	for _, a := range args {
		all = append(all, a.is)
	}
	cmd := once{goredis.NewCmd(ctx, all...)}
	cmd.SetFirstKeyPos(3)
	_ = client.Process(ctx, cmd)
	lookAgain(client, cmd.Err())
	return cmd.Result()
}

// lookAgain makes the client of a cluster read the slots again after a server could not be
// reached, because a replica may have taken over. By itself the client does so once a minute
// and for commands that it repeats.
func lookAgain(client goredis.UniversalClient, err error) {
	if c, ok := client.(*goredis.ClusterClient); ok && err != nil && !answered(err) && !errors.Is(err, context.Canceled) {
		c.ReloadState(context.Background()) // in the background, and at most five times a second
	}
}

// command returns a command with arguments that access a key.
func command(name, key string) []string {
	switch strings.Trim(name, "'") {
	case "INFO", "TIME":
		return []string{name}
	case "EVAL", "EVALSHA":
		return []string{name, "", "1", key}
	case "RENAME":
		return []string{name, key, key}
	case "ZUNIONSTORE":
		return []string{name, key, "1", key}
	}
	return []string{name, key}
}

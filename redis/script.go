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

// script is one atomic step. Redis knows it by the hash of its text, so that
// programs of two versions never call each other's.
type script struct{ text, sha string }

// file is a script's file.
func file(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// load reads a script and puts what its header says it includes behind its header.
func load(name string) script {
	text := file(name)
	const mark = "-- includes: "
	if at := strings.Index(text, mark); at >= 0 {
		line, rest, _ := strings.Cut(text[at:], "\n")
		var included strings.Builder
		for _, other := range strings.Split(strings.TrimPrefix(line, mark), ", ") {
			included.WriteString(file(other))
		}
		text = text[:at] + included.String() + rest
	}
	return newScript(guarded(text))
}

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

// calls finds the commands in a script, but not those that may fail (redis.pcall).
var calls = regexp.MustCompile(`(?:^|[^p])(?:call|many)\('([A-Z]+)'`)

// called are the commands in a script.
func called(text string) map[string]bool {
	names := map[string]bool{}
	for _, call := range calls.FindAllStringSubmatch(text, -1) {
		names[call[1]] = true
	}
	return names
}

// guarded puts before a script that writes what makes sure that the user may give all its
// commands: Redis would run it up to the one that is denied, and keep what was written.
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

// several is what a script does for each of several queues.
func (s script) several() script {
	head, body, _ := strings.Cut(s.text, "\n")
	return newScript(head + "\nlocal function one(KEYS, ARGV)\n" + body + "\nend\n" + file("several"))
}

// The scripts.
var (
	actScript        = load("act")
	armScript        = load("arm")
	asideScript      = load("aside")
	beatScript       = load("beat")
	buryScript       = load("bury")
	claimScript      = load("claim")
	claimKeyedScript = load("claim_keyed")
	clearScript      = load("clear")
	countScript      = load("count")
	dropScript       = load("drop")
	enrollScript     = load("enroll")
	eraseScript      = load("erase")
	extendScript     = load("extend")
	fillScript       = load("fill")
	forgetScript     = load("forget")
	forsakeScript    = load("forsake")
	keyScript        = load("key")
	leaveScript      = load("leave")
	limitScript      = load("limit")
	listScript       = load("list")
	makeScript       = load("make")
	mayScript        = load("may")
	repairScript     = load("repair")
	pauseScript      = load("pause")
	purgeScript      = load("purge")
	rescueScript     = load("rescue")
	scheduleScript   = load("schedule")
	sendScript       = load("send")
	settleScript     = load("settle")
	strikeScript     = load("strike")
	subscribeScript  = load("subscribe")
	tellScript       = load("tell")
	tokenScript      = load("token")
	unsettledScript  = load("unsettled")
	withdrawScript   = load("withdraw")
	workerScript     = load("worker")
)

// once is a command that the client must not repeat by itself after its reply was
// lost, for it may have been done. It still follows where a cluster sends it.
type once struct{ *goredis.Cmd }

// NoRetry implements [goredis.Cmder].
func (once) NoRetry() bool { return true }

// run runs a script, and loads it where Redis does not know it (any more): it
// answers that before it has done anything.
func (s script) run(ctx context.Context, client goredis.UniversalClient, keys []string, args ...any) (any, error) {
	reply, err := eval(ctx, client, "evalsha", s.sha, keys, args)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		reply, err = eval(ctx, client, "eval", s.text, keys, args)
	}
	return reply, err
}

func eval(ctx context.Context, client goredis.UniversalClient, name, script string, keys []string, args []any) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, script, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := once{goredis.NewCmd(ctx, append(all, args...)...)}
	cmd.SetFirstKeyPos(3)
	_ = client.Process(ctx, cmd)
	lookAgain(client, cmd.Err())
	return cmd.Result()
}

// severalMost bounds how many queues one script is for: Redis serves nobody else meanwhile.
const severalMost = 50

// runEach runs a script for each of queues, and returns as many replies in their order, nil
// where there is none, with the error that says why: the others count none the less. It
// takes one call for 50 queues, but in a cluster one for each, since they are in slots of
// their own. An idle process gives hardly more commands for many queues than for one.
func (e *Engine) runEach(ctx context.Context, s script, queues []*queue, args func(*queue) []any) (replies []any, err error) {
	replies = make([]any, len(queues))
	if e.cluster || len(queues) == 1 {
		errs := make([]error, len(queues))
		// All of them, and none waits for another: a server that is away must cost no other
		// queue its leases.
		for from := 0; from < len(queues); from += severalMost {
			var some sync.WaitGroup
			for i := from; i < min(from+severalMost, len(queues)); i++ {
				q := queues[i]
				some.Go(func() { replies[i], errs[i] = s.run(ctx, e.client, q.keys, args(q)...) })
			}
			some.Wait()
		}
		return replies, errors.Join(errs...)
	}
	s = s.several()
	for from := 0; from < len(queues); from += severalMost {
		some := queues[from:min(from+severalMost, len(queues))]
		var names []string
		var all []any
		for _, q := range some {
			its := args(q)
			names = append(names, q.keys...)
			all = append(append(all, len(q.keys), len(its)), its...)
		}
		reply, err := s.run(ctx, e.client, names, all...)
		if err != nil {
			return replies, err
		}
		each, err := list("several", reply, len(some))
		if err != nil {
			return replies, err
		}
		copy(replies[from:], each)
	}
	return replies, nil
}

// lookAgain has a cluster's client ask who serves which slot when a server could not be
// reached, for it may have failed over. By itself the client does that once a minute, and
// else only for commands that it repeats.
func lookAgain(client goredis.UniversalClient, err error) {
	if c, ok := client.(*goredis.ClusterClient); ok && err != nil && !answered(err) && !errors.Is(err, context.Canceled) {
		c.ReloadState(context.Background()) // beside, and not more often than five times a second
	}
}

// unexpected is what cannot be: an answer that is none of the script's.
func unexpected(what string, reply any) error {
	return fmt.Errorf("redis answered %s with %.200v", what, reply)
}

// list is a reply that is a list of n at least.
func list(what string, reply any, n int) ([]any, error) {
	all, ok := reply.([]any)
	if !ok || len(all) < n {
		return nil, unexpected(what, reply)
	}
	return all, nil
}

// str is a reply that is text, or "".
func str(reply any) string { s, _ := reply.(string); return s }

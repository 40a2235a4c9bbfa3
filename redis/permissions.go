package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// permissions are what a user of Redis needs, as its ACL has it.
func (e *Engine) permissions() string {
	cluster := ""
	if e.cluster {
		cluster = " +cluster|slots"
	}
	return fmt.Sprintf("~{%s* &{%s* +@read +@write +@scripting +@connection +publish +subscribe +info +time%s", e.keys.prefix, e.keys.prefix, cluster)
}

// command is a command with arguments that touch a key.
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

// needed are all commands that scripts and this package give, each with arguments that
// touch the keys and channels of a queue and those of all queues.
func (e *Engine) needed() (all [][]string) {
	names := map[string]bool{}
	files, _ := scriptFiles.ReadDir("scripts")
	for _, f := range files {
		maps.Copy(names, called(file(strings.TrimSuffix(f.Name(), ".lua"))))
	}
	for _, own := range []string{"DEL", "EVAL", "EVALSHA", "GET", "HGET", "HGETALL", "HKEYS", "HMGET", "INFO", "LRANGE", "PUBLISH", "SET", "SUBSCRIBE", "TIME", "ZRANGE", "ZREVRANGEBYLEX"} {
		names[own] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if name == "PUBLISH" || name == "SUBSCRIBE" {
			all = append(all, []string{name, e.keys.bell("queue")})
			continue
		}
		for _, key := range []string{e.keys.layout(), e.keys.of("queue", "meta")} {
			all = append(all, command(name, key))
		}
	}
	return all
}

// permitted refuses a user who may not do something that is needed. A script that is
// denied a command does half, so all are looked at before anything is written.
func (e *Engine) permitted(ctx context.Context, c goredis.Cmdable) error {
	all := e.needed()
	reply, err := c.Eval(ctx, mayScript.text, nil, packed(all)).Result()
	if err != nil {
		return readError(err)
	}
	denied, err := list("may", reply, 0)
	if err != nil || len(denied) == 0 {
		return err
	}
	var names []string
	for _, place := range denied {
		if n, ok := place.(int64); ok && n >= 1 && n <= int64(len(all)) && !slices.Contains(names, all[n-1][0]) {
			names = append(names, all[n-1][0])
		}
	}
	what := strings.Join(names[:min(len(names), 5)], ", ")
	if len(names) > 5 {
		what += fmt.Sprintf(" and %d more", len(names)-5)
	}
	return &posthaste.Error{Code: posthaste.Denied, Message: fmt.Sprintf("this user of Redis may not call %s with the keys and channels {%s*", what, e.keys.prefix),
		Hint: "ACL SETUSER <user> " + e.permissions()}
}

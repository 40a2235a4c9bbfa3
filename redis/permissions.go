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

// permissions returns the ACL rules that the Redis user needs.
func (e *Engine) permissions() string {
	cluster := ""
	if e.cluster {
		cluster = " +cluster|slots"
	}
	return fmt.Sprintf("~{%s* &{%s* +@read +@write +@scripting +@connection +publish +subscribe +info +time%s", e.keys.prefix, e.keys.prefix, cluster)
}

// needed returns all commands of the scripts and of this package, with arguments that cover
// the keys and channels of a queue and the common ones.
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

// permitted rejects a user that lacks a permission. A script whose command is denied has
// already written a part, so all commands are checked before the first write.
func (e *Engine) permitted(ctx context.Context, c goredis.Cmdable) error {
	all := e.needed()
	reply, err := c.Eval(ctx, mayScript.read().text, nil, packed(all)).Result()
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
	return &posthaste.Error{Code: posthaste.CodeDenied, Message: fmt.Sprintf("this Redis user may not call %s with the keys and channels {%s*", what, e.keys.prefix),
		Hint: "ACL SETUSER <user> " + e.permissions()}
}

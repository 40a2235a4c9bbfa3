//go:build unix

package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/posthaste-mq/posthaste"
)

// initCluster creates a cluster at dir atomically.
func initCluster(ctx context.Context, b binaries, who *syscall.Credential, dir string, c Config) error {
	unfinished, secret := dir+".new", dir+".password"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("an unfinished cluster cannot be removed: %w", err)
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return fmt.Errorf("the cluster's directory cannot be made: %w", err)
	}
	defer os.Remove(secret)
	_ = os.Remove(secret)
	if err := os.WriteFile(secret, []byte(c.Password+"\n"), 0o600); err != nil {
		return fmt.Errorf("the cluster's password cannot be handed over: %w", err)
	}
	if who != nil {
		for _, path := range []string{unfinished, secret} {
			if err := os.Lchown(path, int(who.Uid), int(who.Gid)); err != nil {
				return fmt.Errorf("the cluster cannot be given to the user PostgreSQL runs as: %w", err)
			}
		}
	}
	args := []string{"--pgdata", unfinished, "--username", c.User, "--pwfile", secret,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"}
	if n, err := strconv.Atoi(b.major()); err == nil && n >= 17 {
		args = append(args, "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8")
	}
	if c.Ephemeral {
		args = append(args, "--no-sync")
	}
	out, err := command(ctx, who, unfinished, b.program("initdb"), args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("the PostgreSQL cluster cannot be created: initdb: %w: %s", errors.Join(err, ctx.Err()), lastLines(out))
		if who == nil && ctx.Err() == nil {
			return nameless(os.Geteuid(), err)
		}
		return err
	}
	return os.Rename(unfinished, dir)
}

// nameless adds a remedy to a failure of initdb if this process's user has no name, as in a
// container with a bare user id. initdb needs the name even with --username, and only an entry
// in passwd helps. It is checked only after the failure, because other sources of user names
// cannot be seen from here.
func nameless(uid int, err error) error {
	if _, unknown := user.LookupId(strconv.Itoa(uid)); unknown == nil {
		return err
	}
	return &posthaste.Error{Code: posthaste.CodeRefused, Cause: err, Message: err.Error(),
		Hint: fmt.Sprintf("user id %d has no name on this system, and PostgreSQL needs one: add a line such as `posthaste:x:%d:%d::/:/sbin/nologin` to /etc/passwd, "+
			"start as a user with a name, or as root, which runs PostgreSQL as another user", uid, uid, os.Getegid())}
}

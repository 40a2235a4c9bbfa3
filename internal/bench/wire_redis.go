package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// openRedisWire is openWire for Redis. It counts commands.
func openRedisWire(at string) (*wire, error) {
	o, err := goredis.ParseURL(at)
	if err != nil {
		return nil, posthaste.Invalidf("redis_url", "the Redis URL cannot be read")
	}
	w := &wire{connect: func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		conn, err := (&net.Dialer{}).DialContext(ctx, o.Network, o.Addr)
		if err != nil || o.TLSConfig == nil {
			return conn, err
		}
		return tls.Client(conn, o.TLSConfig), nil
	}}
	w.count = w.commands
	if err := w.listen(); err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "redis", Host: w.listener.Addr().String(), Path: "/" + strconv.Itoa(o.DB)}
	if o.Username != "" || o.Password != "" {
		u.User = url.UserPassword(o.Username, o.Password)
	}
	w.url = u.String()
	return w, nil
}

// commands forwards the client's commands and counts them. A command is a list of words: the
// number of words, and then each word after its length.
func (w *wire) commands(server io.Writer, client io.Reader) error {
	in, out := bufio.NewReader(client), bufio.NewWriter(server)
	length := func(kind string) (int64, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(line, kind), "\r\n"), 10, 64)
		if err != nil || !strings.HasPrefix(line, kind) || n < 0 {
			return 0, fmt.Errorf("not a Redis command: %.20q", line)
		}
		_, err = out.WriteString(line)
		return n, err
	}
	for {
		words, err := length("*")
		if err != nil {
			return err
		}
		for range words {
			n, err := length("$")
			if err == nil {
				_, err = io.CopyN(out, in, n+2)
			}
			if err != nil {
				return err
			}
		}
		w.statements.Add(1)
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

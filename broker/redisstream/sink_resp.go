package redisstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// This is the part of the Redis protocol (RESP2) that the sink needs. The sink does not use a
// client library, because go-redis does not report whether a command was written, repeats
// commands after a lost reply, and gives a connection to one caller at a time.

// command is one command, encoded.
type command []byte

// newCommand begins a command of n words.
func newCommand(n, size int) command {
	c := make(command, 0, size+16*(n+1))
	c = append(c, '*')
	c = strconv.AppendInt(c, int64(n), 10)
	return append(c, '\r', '\n')
}

// word adds a word.
func word[T string | []byte](c command, text T) command {
	c = append(c, '$')
	c = strconv.AppendInt(c, int64(len(text)), 10)
	c = append(c, '\r', '\n')
	c = append(c, text...)
	return append(c, '\r', '\n')
}

// words returns a command of these words.
func words(texts ...string) command {
	c := newCommand(len(texts), 64)
	for _, text := range texts {
		c = word(c, text)
	}
	return c
}

// reply is the server's reply to a command.
type reply struct {
	text  string
	null  bool
	list  []reply
	fault fault // the error, or empty
}

// fault is an error of the server, such as "READONLY You can't write …".
type fault string

// tooManyClients is the error of a server that accepts no further connections.
const tooManyClients fault = "ERR max number of clients reached"

// Error implements error.
func (f fault) Error() string { return string(f) }

// code returns the error's code, such as "READONLY". Many errors have the code "ERR".
func (f fault) code() string {
	code, _, _ := strings.Cut(string(f), " ")
	return code
}

// maxReply bounds the lengths in a reply. The replies to the commands of the sink are
// small.
const maxReply = 1 << 20

var errProtocol = errors.New("the server does not speak the protocol of Redis")

// readReply reads one reply, in which lists may be nested up to depth.
func readReply(r *bufio.Reader, depth int) (reply, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return reply{}, errProtocol
	}
	if err != nil {
		return reply{}, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return reply{}, errProtocol
	}
	kind, text := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+', ':':
		return reply{text: text}, nil
	case '-':
		return reply{fault: fault(text)}, nil
	case '$', '*':
	default:
		return reply{}, errProtocol
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < -1 || n > maxReply || depth == 0:
		return reply{}, errProtocol
	case n == -1:
		return reply{null: true}, nil
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return reply{}, err
		}
		return reply{text: string(b[:n])}, nil
	}
	var out reply
	for range n {
		item, err := readReply(r, depth-1)
		if err != nil {
			return reply{}, err
		}
		out.list = append(out.list, item)
	}
	return out, nil
}

// int returns a reply's number, or -1 if it is not a number.
func (r reply) int() int {
	n, err := strconv.Atoi(r.text)
	if err != nil {
		return -1
	}
	return n
}

// unexpected returns the error of a reply that does not fit the command.
func (r reply) unexpected() error { return fmt.Errorf("%w: it replied %.40q", errProtocol, r.text) }

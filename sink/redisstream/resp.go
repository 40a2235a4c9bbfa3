package redisstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// The protocol of Redis, version 2, as far as it is needed here: commands are lists
// of texts. Client libraries do not tell whether a command was written, repeat
// commands, or leave a connection to one caller at a time; all of that matters here.

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

// words is a command of these words.
func words(texts ...string) command {
	c := newCommand(len(texts), 64)
	for _, text := range texts {
		c = word(c, text)
	}
	return c
}

// reply is what the server says to a command.
type reply struct {
	text  string
	null  bool
	list  []reply
	fault fault // the error that it says; empty if it says none
}

// fault is an error that the server said, such as "READONLY You can't write …".
type fault string

// Error implements error.
func (f fault) Error() string { return string(f) }

// maxReply bounds what is believed of a reply's lengths: those that are asked for
// here are small.
const maxReply = 1 << 20

var errProtocol = errors.New("the server does not speak the protocol of Redis")

// readReply reads one reply; lists may be nested that deep.
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

// int is a reply's number, -1 if it is none.
func (r reply) int() int {
	n, err := strconv.Atoi(r.text)
	if err != nil {
		return -1
	}
	return n
}

// unexpected is the error of a reply that is none to what was asked.
func (r reply) unexpected() error { return fmt.Errorf("%w: it replied %.40q", errProtocol, r.text) }

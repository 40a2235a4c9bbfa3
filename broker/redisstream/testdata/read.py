"""Prints the entries of a stream as JSON, one a line: read.py HOST:PORT STREAM. It
speaks the protocol by itself."""

import base64
import json
import socket
import sys

address, stream = sys.argv[1:]
host, port = address.rsplit(":", 1)
server = socket.create_connection((host, int(port))).makefile("rwb")


def read():
    kind, rest = server.read(1), server.readline()[:-2]
    if kind == b"$":
        return server.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [read() for _ in range(int(rest))]
    raise ValueError(kind + rest)


words = ["XRANGE", stream, "-", "+"]
server.write(f"*{len(words)}\r\n".encode() + b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words))
server.flush()
for _, fields in read():
    entry = {name.decode(): value for name, value in zip(fields[::2], fields[1::2])}
    if 2 * len(entry) != len(fields):
        raise ValueError(f"a field is there twice: {fields}")
    print(json.dumps({
        "id": entry.pop("message_id").decode(),
        "content_type": entry.pop("content_type").decode(),
        "payload": base64.b64encode(entry.pop("payload")).decode(),
        "headers": {name: value.decode() for name, value in entry.items()},
    }))

"""Prints the messages of a stream as JSON, one a line: read.py HOST:PORT STREAM COUNT.
It speaks the protocol by itself."""

import base64
import json
import socket
import sys

address, stream, count = sys.argv[1:]
host, port = address.rsplit(":", 1)
server = socket.create_connection((host, int(port))).makefile("rwb")
server.readline()  # INFO
server.write(b'CONNECT {"verbose": false, "headers": true}\r\nSUB answers 1\r\n')
for n in range(1, int(count) + 1):
    body = json.dumps({"seq": n}).encode()
    server.write(b"PUB $JS.API.STREAM.MSG.GET.%s answers %d\r\n%s\r\n" % (stream.encode(), len(body), body))
server.flush()
for _ in range(int(count)):
    while not (line := server.readline()).startswith(b"MSG "):
        if line.startswith(b"-ERR"):
            raise ValueError(line)
    message = json.loads(server.read(int(line.split()[-1]) + 2))["message"]
    version, *lines = base64.b64decode(message["hdrs"]).decode().removesuffix("\r\n\r\n").split("\r\n")
    headers = {}
    for line in lines:
        name, value = line.split(":", 1)
        if name in headers:
            raise ValueError(f"header {name} is there twice")
        headers[name] = value.strip(" \t")  # optional blanks around a value are no part of it
    print(json.dumps({
        "id": headers.pop("Nats-Msg-Id"),
        "content_type": headers.pop("content-type"),
        "payload": message["data"],
        "headers": headers,
    }))

"""Prints the messages of a queue as JSON, one a line: read.py URL QUEUE COUNT."""

import base64
import json
import sys

import pika

url, queue, count = sys.argv[1:]
channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
for _ in range(int(count)):
    method, properties, body = channel.basic_get(queue)
    if method is None:
        break
    print(json.dumps({
        "id": properties.message_id,
        "content_type": properties.content_type,
        "payload": base64.b64encode(body).decode(),
        "headers": properties.headers,
    }))

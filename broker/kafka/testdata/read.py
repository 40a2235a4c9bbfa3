"""Prints the records of a topic as JSON, one a line: read.py SERVER TOPIC COUNT."""

import base64
import json
import sys

from kafka import KafkaConsumer

server, topic, count = sys.argv[1:]
records = KafkaConsumer(topic, bootstrap_servers=server, auto_offset_reset="earliest", api_version=(2, 0), consumer_timeout_ms=30000)
for _, record in zip(range(int(count)), records):
    headers = {name: value.decode() for name, value in record.headers}
    if len(headers) != len(record.headers):
        raise ValueError(f"a header is there twice: {record.headers}")
    print(json.dumps({
        "id": headers.pop("message-id"),
        "content_type": headers.pop("content-type"),
        "payload": base64.b64encode(record.value).decode(),
        "headers": headers,
    }))

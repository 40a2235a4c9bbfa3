"""Reads mails from standard input, base64, one a line, and writes what Python's
e-mail package understands of each as one line of JSON."""

import base64
import email.policy
import json
import sys
from email.header import decode_header, make_header
from email.utils import getaddresses, unquote

ADDRESSES = {"From", "To", "Cc", "Reply-To", "Disposition-Notification-To", "Return-Receipt-To", "Errors-To"}


def addresses(value):
    """The older parser, because the newer one of Python 3.11 reads a space between
    encoded words that stand side by side in a display name."""
    for name, address in getaddresses([value.replace("\r\n", "")]):
        local, _, domain = address.rpartition("@")
        yield {"name": str(make_header(decode_header(name))), "address": f"{unquote(local)}@{domain}"}


for line in sys.stdin:
    # As text, because addresses of SMTPUTF8 are not encoded.
    mail = email.message_from_string(base64.b64decode(line).decode(), policy=email.policy.default)
    read = {"texts": {}, "addresses": {}, "parts": []}
    for name, value in mail.raw_items():
        if name in read["texts"]:
            raise ValueError(f"header {name} is there twice")
        if name in ADDRESSES:
            read["addresses"][name] = list(addresses(value))
        read["texts"][name] = str(mail[name])
    for part in mail.walk():
        if not part.is_multipart():
            read["parts"].append({
                "type": part.get_content_type(),
                "attached": part.get_content_disposition() == "attachment",
                # get_filename strips quotes and angle brackets that belong to the name.
                "filename": part["Content-Disposition"].params["filename"] if "Content-Disposition" in part else "",
                "content": base64.b64encode(part.get_payload(decode=True)).decode(),
            })
    print(json.dumps(read))

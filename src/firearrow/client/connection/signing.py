"""Signatures of requests: HMAC-SHA1 over the values of all ext fields, in the order of their keys (capitals first), and the body.

`AccessKey` and `SecurityToken`, which are added here, are included.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import orjson

from firearrow.client.options import Credentials
from firearrow.wire.frame import text


class Signer:
    """Signs requests with one pair of keys."""

    def __init__(self, credentials: Credentials) -> None:
        self._keyed = hmac.new(credentials.secret_key.encode(), digestmod=hashlib.sha1)
        self._fields = {"AccessKey": credentials.access_key}
        if credentials.security_token is not None:
            self._fields["SecurityToken"] = credentials.security_token
        self.leading = "".join(self._fields.values()).encode()  # both keys sort before all keys in lower case

    def signed(self, ext: Mapping[str, Any], body: bytes) -> dict[str, Any]:
        """Return the fields with the keys and the signature added."""
        fields = {key: text(value) for key, value in ext.items() if value is not None} | self._fields
        content = "".join([fields[key] for key in sorted(fields)]).encode()
        return fields | {"Signature": self.signature(content, body)}

    def json_fields(self, content: bytes, body: bytes) -> bytes:
        """Return the added fields as JSON members with a leading comma, for a header template.

        `content` contains the values of the other fields in the order of their keys, which are in lower case.
        """
        fields = orjson.dumps(self._fields | {"Signature": self.signature(self.leading + content, body)})
        return b"," + fields[1:-1]

    def signature(self, content: bytes, body: bytes) -> str:
        keyed = self._keyed.copy()
        keyed.update(content)
        keyed.update(body)
        return b64encode(keyed.digest()).decode()

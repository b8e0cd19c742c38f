"""Signed requests: HMAC-SHA1 over what the request says.

The content is the values of all ext fields but the signature, in the order of their keys (capitals first), followed by the body.
The keys that are added here, `AccessKey` and `SecurityToken`, are part of it.
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
    def __init__(self, credentials: Credentials) -> None:
        self._keyed = hmac.new(credentials.secret_key.encode(), digestmod=hashlib.sha1)
        self._fields = {"AccessKey": credentials.access_key}
        if credentials.security_token is not None:
            self._fields["SecurityToken"] = credentials.security_token
        self.leading = "".join(self._fields.values()).encode()  # both sort before every key of ours that is in small letters

    def signed(self, ext: Mapping[str, Any], body: bytes) -> dict[str, Any]:
        """The fields to be sent: those given, the keys and the signature."""
        fields = {key: text(value) for key, value in ext.items() if value is not None} | self._fields
        content = "".join([fields[key] for key in sorted(fields)]).encode()
        return fields | {"Signature": self.signature(content, body)}

    def json_fields(self, content: bytes, body: bytes) -> bytes:
        """The three fields as JSON members with a comma in front, for a header that is formatted and not built. `content` are the
        values of its fields in the order of their keys, which are all in small letters."""
        fields = orjson.dumps(self._fields | {"Signature": self.signature(self.leading + content, body)})
        return b"," + fields[1:-1]

    def signature(self, content: bytes, body: bytes) -> str:
        keyed = self._keyed.copy()
        keyed.update(content)
        keyed.update(body)
        return b64encode(keyed.digest()).decode()

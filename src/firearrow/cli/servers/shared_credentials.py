"""Credentials that the servers of `firearrow up` share when access control is on.

Brokers sign their requests to the name server and to each other with them, and operators use them to create other users. They
are created once, with a random secret key, in a file that only its owner can read.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Final

from firearrow.auth.bootstrap import FIRST_USER, FIRST_USER_FILE
from firearrow.auth.settings import AuthSettings
from firearrow.auth.table import FILE_NAME
from firearrow.config.fields import SettingError
from firearrow.config.secret import Secret

_SECRET_BYTES: Final = 24


def share_credentials(data: Path, *servers: AuthSettings) -> Path | None:
    """Give all servers the same inner credentials, unless the settings have them. Return the file if it is used."""
    if not servers[0].authentication_enabled or servers[0].inner_client_authentication_credentials is not None:
        return None
    path = data / FIRST_USER_FILE
    if not path.exists():
        if any((data / directory / FILE_NAME).exists() for directory in ("config", "namesrv")):
            expected = f"the keys of a Super user: {path} was deleted, and brokers cannot sign their registration without them"
            raise SettingError("innerClientAuthenticationCredentials", "", expected)
        data.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({"accessKey": FIRST_USER, "secretKey": secrets.token_urlsafe(_SECRET_BYTES)}, file)
    shared = Secret(path.read_text(encoding="utf-8"))
    for server in servers:
        server.inner_client_authentication_credentials = shared
        server.inner_credentials()  # raises SettingError if the file was damaged
    return path

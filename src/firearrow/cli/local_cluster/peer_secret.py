"""The secret of the brokers of `firearrow up --cluster`, for clusters that listen beyond loopback."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from firearrow.net.address import is_loopback

FILE: Final = "peer.secret"
_ALTERNATIVES: Final = ("peerSecretFile", "authenticationEnabled", "peerUseTLS", "allowUnauthenticatedPeers")


def peer_secret_settings(data: Path, host: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that let the brokers authenticate each other. Empty on loopback, or if `settings` decide it."""
    if is_loopback(host) or any(key in settings for key in _ALTERNATIVES):
        return {}
    path = data / FILE
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
    return {"peerSecretFile": str(path)}

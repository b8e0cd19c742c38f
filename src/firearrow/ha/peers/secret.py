"""The secret that the brokers of a group share.

A file has one secret per line; empty lines and lines that begin with # are skipped. A broker dials with the first secret and
accepts all of them, so a secret is replaced without an interruption:

1. Append the new secret to the file of every broker.
2. Move it to the first line of every file.
3. Remove the old one from every file.

A changed file is used for the next handshake, without a restart.
"""

from __future__ import annotations

import logging
import os
import stat
from typing import Protocol

from firearrow.config.fields import SettingError

MIN_LENGTH = 16
_KEY = "peerSecretFile"

log = logging.getLogger("firearrow.ha")


class GroupSecrets(Protocol):
    """The valid secrets, the preferred one first."""

    def current(self) -> list[bytes]: ...


class FixedSecret:
    """One secret that does not change while the broker runs."""

    def __init__(self, secret: bytes) -> None:
        self._secrets = [secret]

    def current(self) -> list[bytes]:
        return self._secrets


class SecretFile:
    """Secrets in a file. The SettingError of the constructor names an unusable file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp, self._secrets = _read(path)
        if os.stat(path).st_mode & (stat.S_IROTH | stat.S_IWOTH):
            log.warning("%s=%s is readable for every user of this machine: chmod 600 %s", _KEY, path, path)

    def current(self) -> list[bytes]:
        try:
            if _stamp(self._path) != self._stamp:
                self._stamp, self._secrets = _read(self._path)
                log.info("%s: the secret was replaced", self._path)
        except (OSError, SettingError) as error:
            log.error("keeping the previous secret: %s", error)
        return self._secrets


def _stamp(path: str) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_ino, status.st_size


def _read(path: str) -> tuple[tuple[int, int, int], list[bytes]]:
    try:
        stamp = _stamp(path)
        with open(path, "rb") as file:
            lines = [line.strip() for line in file.read(65_536).splitlines()]
    except OSError as error:
        raise SettingError(_KEY, path, f"a readable file: {error.strerror}") from error
    secrets = [line for line in lines if line and not line.startswith(b"#")]
    if not secrets or min(map(len, secrets)) < MIN_LENGTH:
        expected = f"a file with secrets of {MIN_LENGTH} or more characters, for example from `openssl rand -hex 32`"
        raise SettingError(_KEY, path, expected)
    return stamp, secrets

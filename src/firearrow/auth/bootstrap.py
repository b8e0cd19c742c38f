"""The users that exist when a server with access control starts.

    initAuthenticationUser                    created as Super if absent
    innerClientAuthenticationCredentials      created as Super if absent: other servers sign their requests with it
    accounts of ACL 1.0                       created with their permissions if absent (migrateAuthFromV1Enabled)
    none of them, and no user yet             a Super user with a random secret key, written to a file

There are no default credentials. The random secret key never reaches the log.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from firearrow.auth.policies import AccessControlList
from firearrow.auth.settings import AuthSettings, UserSecret
from firearrow.auth.table import FILE_NAME, AuthTable, AuthTableError
from firearrow.auth.users import StoredUser, UserType
from firearrow.config.secret import Secret
from firearrow.store import atomic_file
from firearrow.store.filesystem import Disk
from firearrow.wire.fastjson import dumps_pretty
from firearrow.wire.signature import RequestSigner

FIRST_USER: Final = "admin"
FIRST_USER_FILE: Final = "admin_credentials.json"
_SECRET_BYTES: Final = 24

log = logging.getLogger("firearrow.auth")

Accounts = Iterable[tuple[StoredUser, AccessControlList | None]]


def open_table(
    settings: AuthSettings, disk: Disk, directory: str, now_ms: Callable[[], int], accounts: Callable[[], Accounts]
) -> AuthTable | None:
    """Load the table from a directory and add the users of the settings. None without authentication.

    `accounts` returns those of ACL 1.0. It is called only if they are to be migrated.
    """
    AuthSettings.check(settings)  # settings that a program assigned were not checked yet
    if not settings.authentication_enabled:
        return None
    path = os.path.join(directory, FILE_NAME)
    table = AuthTable(lambda value: atomic_file.save_table(disk, path, value), now_ms)
    stored = atomic_file.load_table(disk, path, log.warning)
    if stored is not None:
        if not isinstance(stored, dict):
            raise AuthTableError(f"{path} is not a JSON object; restore a copy of it")
        table.load(stored)
    configured = [
        (StoredUser(given.username, given.password, UserType.SUPER), None)
        for given in (settings.initial_user(), settings.inner_credentials())
        if given is not None
    ]
    table.add_missing(configured)
    _check_inner_password(table, settings.inner_credentials())
    if settings.migrate_auth_from_v1_enabled:
        added = table.add_missing(accounts())
        log.info("%d accounts of ACL 1.0 became users; white addresses were not taken over", len(added))
    if table.is_empty:
        _create_first_user(table, disk, directory)
    return table


def inner_signer(settings: AuthSettings) -> RequestSigner | None:
    """Return the signer of a server's own requests to other servers."""
    inner = settings.inner_credentials()
    return None if inner is None else RequestSigner(inner.username, inner.password.reveal())


def _check_inner_password(table: AuthTable, inner: UserSecret | None) -> None:
    user = None if inner is None else table.find(inner.username)
    if inner is not None and user is not None and (user.password != inner.password or not user.is_super):
        log.warning(
            "the user %r exists with another password or as a Normal user; servers that sign with "
            "innerClientAuthenticationCredentials may be refused",
            inner.username,
        )


def _create_first_user(table: AuthTable, disk: Disk, directory: str) -> None:
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    path = os.path.join(directory, FIRST_USER_FILE)
    # The file first: a user whose secret key nobody can read would lock the operator out.
    disk.mkdirs(directory)
    atomic_file.replace(disk, path, dumps_pretty({"accessKey": FIRST_USER, "secretKey": secret}))
    table.put_user(StoredUser(FIRST_USER, Secret(secret), UserType.SUPER))
    log.warning("created the Super user %s; its secret key is in %s: store it elsewhere and delete the file", FIRST_USER, path)

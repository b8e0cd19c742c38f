"""Table of users and their access control lists, kept in `config/auth.json`.

    {"dataVersion": {...}, "users": {name: {...}}, "acls": {subject: {...}}}

The file contains passwords, because HMAC needs the key itself. It is readable by its owner only.

Invariants:
- Users and lists are immutable and replaced as a whole. `principals` is emptied by every change, and with it every cached
  decision.
- A change is on disk when the method returns, and has its own data version.
- A subject has a list only while its user exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from firearrow.auth.policies import AccessControlList, PolicyError
from firearrow.auth.principal import Principal
from firearrow.auth.users import StoredUser
from firearrow.wire.bodies.auth import AclInfo
from firearrow.wire.bodies.topic import DataVersion
from firearrow.wire.errors import ProtocolError

FILE_NAME = "auth.json"
SUBJECT_PREFIX = "User:"

Listener = Callable[[str, dict[str, Any] | None], None]


class AuthTableError(ValueError):
    """The file of users and policies cannot be read."""


class AuthTable:
    """`save` writes the file and returns when it is on disk."""

    def __init__(self, save: Callable[[dict[str, Any]], None], now_ms: Callable[[], int]) -> None:
        self.data_version = DataVersion()
        self._save = save
        self._now_ms = now_ms
        self._users: dict[str, StoredUser] = {}
        self._lists: dict[str, AccessControlList] = {}
        self._principals: dict[str, Principal] = {}
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(name, entry)` for every changed user from now on; after a deletion `entry` = None."""
        self._listeners.append(listener)

    # Lookup

    @property
    def is_empty(self) -> bool:
        return not self._users

    def find(self, name: str) -> StoredUser | None:
        return self._users.get(name)

    def users(self) -> Iterable[StoredUser]:
        return self._users.values()

    def acl(self, name: str) -> AccessControlList | None:
        """Return the list of the user with this name."""
        return self._lists.get(name)

    def acls(self) -> Iterable[AccessControlList]:
        return self._lists.values()

    def principal(self, name: str) -> Principal | None:
        """Return the user with its key and its cached decisions."""
        found = self._principals.get(name)
        if found is None:
            user = self._users.get(name)
            if user is not None:
                acl = self._lists.get(name) or AccessControlList(user.subject)
                found = self._principals[name] = Principal(user, acl)
        return found

    # Changes

    def put_user(self, user: StoredUser) -> None:
        self._users[user.name] = user
        self._changed(user.name)

    def delete_user(self, name: str) -> None:
        """Delete a user with its list."""
        if self._users.pop(name, None) is not None:
            self._lists.pop(name, None)
            self._changed(name)

    def put_acl(self, name: str, acl: AccessControlList) -> None:
        """Replace the list of a user. An empty list is removed."""
        assert name in self._users, "a list belongs to a user"
        if acl.is_empty:
            self._lists.pop(name, None)
        else:
            self._lists[name] = acl
        self._changed(name)

    def add_missing(self, users: Iterable[tuple[StoredUser, AccessControlList | None]]) -> list[str]:
        """Add users that do not exist yet, with their lists. Return their names."""
        added = []
        for user, acl in users:
            if user.name not in self._users:
                self._users[user.name] = user
                if acl is not None and not acl.is_empty:
                    self._lists[user.name] = acl
                added.append(user.name)
        if added:
            self._changed(*added)
        return added

    # The file, replicas and the change log

    def load(self, table: Mapping[str, Any]) -> None:
        """Replace the table by the contents of the file. Raise AuthTableError if they are invalid."""
        try:
            users = {user.name: user for user in map(StoredUser.from_json, _values(table, "users"))}
            lists = dict(_read_list(value) for value in _values(table, "acls"))
            version = table.get("dataVersion")
            self.data_version = DataVersion() if version is None else DataVersion.from_json(version)
        except (ProtocolError, ValueError) as error:
            raise AuthTableError(f"the table of users and policies is invalid: {error}") from error
        self._users = users
        self._lists = {name: acl for name, acl in lists.items() if name in users}
        self._principals = {}

    def to_json(self) -> dict[str, Any]:
        """Return the contents of the file, with passwords."""
        return {
            "dataVersion": self.data_version.to_json(),
            "users": {name: user.to_json() for name, user in self._users.items()},
            "acls": {acl.subject: acl.info().to_json() for acl in self._lists.values()},
        }

    def take_over(self, table: Mapping[str, Any]) -> None:
        """Replace the table by the master's, if it differs."""
        if table.get("dataVersion") != self.data_version.to_json():
            self.load(table)
            self._save(self.to_json())

    def restore(self, name: str, entry: Mapping[str, Any] | None) -> None:
        """Apply a change of the previous master: a user with its list, or None after its deletion."""
        if entry == self._entry(name):
            return
        if entry is None:
            self._users.pop(name, None)
            self._lists.pop(name, None)
        else:
            user = StoredUser.from_json(entry.get("user"))
            acl = entry.get("acl")
            self._users[name] = user
            if acl is None:
                self._lists.pop(name, None)
            else:
                self._lists[name] = _read_list(acl)[1]
        self._changed(name)

    def _entry(self, name: str) -> dict[str, Any] | None:
        user, acl = self._users.get(name), self._lists.get(name)
        if user is None:
            return None
        return {"user": user.to_json(), "acl": None if acl is None else acl.info().to_json()}

    def _changed(self, *names: str) -> None:
        self._principals = {}
        version = self.data_version
        self.data_version = replace(version, counter=version.counter + 1, timestamp=max(self._now_ms(), version.timestamp))
        self._save(self.to_json())
        for name in names:
            entry = self._entry(name)
            for listener in self._listeners:
                listener(name, entry)


def _values(table: Mapping[str, Any], key: str) -> list[Any]:
    found = table.get(key)
    if found is None:
        return []
    if not isinstance(found, dict):
        raise ValueError(f"{key} is not an object")
    return list(found.values())


def _read_list(value: Any) -> tuple[str, AccessControlList]:
    info = AclInfo.from_json(value)
    subject = info.subject or ""
    if not subject.startswith(SUBJECT_PREFIX):
        raise PolicyError(f"the subject {subject!r} is not a user")
    return subject.removeprefix(SUBJECT_PREFIX), AccessControlList.from_info(subject, info)

"""Tables, gates and requests for the tests of access control."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from firearrow.auth.gate import Gate, Rule
from firearrow.auth.policies import AccessControlList
from firearrow.auth.table import AuthTable
from firearrow.auth.users import StoredUser, UserType
from firearrow.config.secret import Secret
from firearrow.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request, request_code, request_fields
from firearrow.wire.signature import RequestSigner

PASSWORD = "12345678"
SUPER, NORMAL = UserType.SUPER, UserType.NORMAL


class Users:
    """A table in memory. `saved` is the last content of its file."""

    def __init__(self, *names: str) -> None:
        clock = count(1)
        self.saved: dict[str, Any] = {}
        self.saves = 0
        self.table = AuthTable(self._save, lambda: next(clock))
        self.add("root", SUPER)
        for name in names:
            self.add(name)

    def add(self, name: str, kind: UserType = NORMAL) -> None:
        self.table.put_user(StoredUser(name, Secret(PASSWORD), kind))

    def allow(self, name: str, *permissions: str, decision: str = "Allow") -> None:
        """Grant permissions such as `Topic:a Pub,Sub`."""
        pairs = [permission.split(" ") for permission in permissions]
        entries = [PolicyEntryInfo(resource, actions.split(","), None, decision) for resource, actions in pairs]
        acl = AccessControlList.from_info(f"User:{name}", AclInfo(f"User:{name}", [PolicyInfo(None, entries)]))
        self.table.put_acl(name, acl)

    def gate(self, rules: Mapping[int, Rule], *, authorizes: bool = True, **whitelists: Any) -> Gate:
        return Gate(self.table, rules, authorizes=authorizes, **whitelists)

    def _save(self, value: dict[str, Any]) -> None:
        self.saved = value
        self.saves += 1


def signed(
    request: Request, user: str, body: bytes = b"", *, password: str = PASSWORD, fields: Mapping[str, str] | None = None
) -> Command:
    """Return a request that the user has signed."""
    ext = RequestSigner(user, password).signed(request_fields(request) | dict(fields or {}), body)
    return Command(request_code(request), ext=ext, body=body)


def unsigned(request: Request, body: bytes = b"", **extra: Any) -> Command:
    return Command(request_code(request), ext=request_fields(request) | extra, body=body)

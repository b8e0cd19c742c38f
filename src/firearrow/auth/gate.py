"""The decision about a request: authentication, then authorization.

A gate has one rule for every request code that its server serves. A rule returns the needs of a request. Codes without a rule
are open to Super users only. An empty list of needs means that a valid signature is enough.

Requests that a member of an elected group forwards are signed by that member, a Super user, and carry the name and address of
the client. The member has authenticated the client, the receiver authorizes it. A forwarded request from any other user is
refused, so nobody else can choose an identity.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from firearrow.auth.principal import Needs, Principal
from firearrow.auth.table import AuthTable
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command, text
from firearrow.wire.signature import ACCESS_KEY

FORWARDED_USER: Final = "faForwardedUser"
FORWARDED_ADDRESS: Final = "faForwardedAddress"

Rule = Callable[[Command], Needs]

_SHOWN_CHARS: Final = 64
AUTH_CODES: Final = range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1)
"""Requests that manage users and policies."""


class AccessDeniedError(Exception):
    """Refuses a request with NO_PERMISSION. `remark` is for the peer."""

    def __init__(self, remark: str) -> None:
        super().__init__(remark)
        self.remark = remark


class Caller:
    """The authenticated sender of a request, without a `principal` if the request needs no signature and has no valid one."""

    __slots__ = ("address", "principal")

    def __init__(self, principal: Principal | None, address: str) -> None:
        self.principal = principal
        self.address = address

    @property
    def is_super(self) -> bool:
        return self.principal is not None and self.principal.is_super

    @property
    def name(self) -> str:
        return "" if self.principal is None else self.principal.name


class Gate:
    """`unsigned` and `unauthorized` are the codes of the two whitelists."""

    def __init__(
        self,
        table: AuthTable,
        rules: Mapping[int, Rule],
        *,
        authorizes: bool,
        unsigned: Collection[int] = (),
        unauthorized: Collection[int] = (),
    ) -> None:
        self._table = table
        self._rules = rules
        self._authorizes = authorizes
        self._unsigned = frozenset(unsigned)
        self._unauthorized = frozenset(unauthorized)
        self._last = Caller(None, "")

    def admit(self, request: Command, address: str, *, forwarded: bool = False) -> Caller:
        """Return the sender of an admitted request; raise AccessDeniedError for another.

        With `forwarded` the request is authenticated only: the server it is forwarded to authorizes it.
        """
        ext = request.ext
        name = ext.get(ACCESS_KEY)
        if name.__class__ is int:  # some clients send numbers as numbers
            name = text(name)
        principal = self._table.principal(name) if name.__class__ is str else None
        if principal is None or not principal.is_enabled or not principal.key.is_signed(ext, request.body):
            if request.code not in self._unsigned:
                raise AccessDeniedError(_why_not_authenticated(name, principal))
            caller = Caller(None, address)
        elif FORWARDED_USER in ext:
            caller = self._client_of(principal, request)
        else:
            if principal is not self._last.principal or address != self._last.address:
                self._last = Caller(principal, address)  # the requests of a read have the same sender
            caller = self._last
        if not self._authorizes:
            if request.code in AUTH_CODES and not caller.is_super:
                raise AccessDeniedError(f"request {request.code} needs a Super user while authorizationEnabled is false.")
        elif not forwarded:
            self._authorize(caller, request)
        return caller

    def _client_of(self, member: Principal, request: Command) -> Caller:
        """Return the client whose request a member of the group forwards."""
        if not member.is_super:
            raise AccessDeniedError(f"{member.user.subject} may not forward requests of other users.")
        name, address = request.ext[FORWARDED_USER], request.ext.get(FORWARDED_ADDRESS)
        if name.__class__ is not str or address.__class__ is not str:
            raise AccessDeniedError("the forwarded request does not name its sender.")
        if not name:  # the code is on the whitelist of the other member
            return Caller(None, address)
        client = self._table.principal(name)
        if client is None or not client.is_enabled:
            raise AccessDeniedError(_why_not_authenticated(name, client))
        return Caller(client, address)

    def _authorize(self, caller: Caller, request: Command) -> None:
        principal = caller.principal
        if principal is not None and principal.is_super:
            return
        code = request.code
        if code in self._unauthorized:
            return
        rule = self._rules.get(code)
        if rule is None:
            raise AccessDeniedError(f"request {code} needs a Super user.")
        needs = rule(request)
        if principal is None:
            if needs:
                raise AccessDeniedError(f"username cannot be null: request {code} needs permissions.")
            return
        refusal = principal.refusal(needs, caller.address)
        if refusal:
            raise AccessDeniedError(refusal)


def _why_not_authenticated(name: object, principal: Principal | None) -> str:
    if name.__class__ is not str or not name:
        return "username cannot be null."
    if principal is None:
        return f"User:{str(name)[:_SHOWN_CHARS]} is not found."
    return "check signature failed." if principal.is_enabled else f"User:{principal.name} is disabled."


def caller_of(request: Command) -> Caller | None:
    """Return the authenticated sender, None if the server has no access control."""
    return getattr(request, "caller", None)

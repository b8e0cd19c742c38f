"""A user as the server sees it while it serves requests: key, permissions, cached decisions."""

from __future__ import annotations

from typing import Final

from firearrow.auth.policies import AccessControlList, Need
from firearrow.auth.users import StoredUser, UserStatus
from firearrow.wire.signature import SecretKey

# Bounds on the cached decisions: peers choose the names of resources.
_MAX_DECISIONS: Final = 10_000
_MAX_CACHED_NEEDS: Final = 4

Needs = tuple[Need, ...]


class Principal:
    """A user with its list. Valid until the next change of users or policies."""

    __slots__ = ("_acl", "_refusals", "is_enabled", "is_super", "key", "name", "user")

    def __init__(self, user: StoredUser, acl: AccessControlList) -> None:
        self.user = user
        self.name = user.name
        self.is_super = user.is_super
        self.is_enabled = user.status is UserStatus.ENABLE
        self.key = SecretKey(user.password.reveal())
        self._acl = acl
        self._refusals: dict[tuple[Needs, str], str] = {}

    def refusal(self, needs: Needs, address: str) -> str:
        """Return the remark that refuses these needs to a peer at `address`, "" if all of them are allowed."""
        found = self._refusals.get((needs, address))
        if found is None:
            found = next(filter(None, (self._decide(need, address) for need in needs)), "")
            if len(needs) <= _MAX_CACHED_NEEDS:
                if len(self._refusals) >= _MAX_DECISIONS:
                    self._refusals.clear()
                self._refusals[needs, address] = found
        return found

    def _decide(self, need: Need, address: str) -> str:
        decision = self._acl.decide(need, address)
        if decision.allowed:
            return ""
        return f"{self.user.subject} has no permission to access {need.resource} from {address}, {decision.reason}"

"""Policies: which user may do what to which resource, from where.

The list of a subject has Custom and Default entries. An entry applies to a need if its resource fits, if it contains one of the
needed actions, and if the peer's address fits. Default entries count only if no Custom entry applies. Among the entries that
apply the most specific decides:

    a type of resource before `*`; a literal name before a prefix, a longer prefix before a shorter one, then `Type:*`
    at a tie Deny before Allow

Internal topics (half messages, timers, dead letters) are opened by literal entries only: `Topic:*` is meant for the topics of
applications.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from firearrow.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from firearrow.wire.names import DLQ_PREFIX, SCHEDULE_TOPIC, TRACE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC

PUB: Final = 1
SUB: Final = 2
CREATE: Final = 4
UPDATE: Final = 8
DELETE: Final = 16
GET: Final = 32
LIST: Final = 64
ALL: Final = 127

_ACTIONS: Final = {"All": ALL, "Pub": PUB, "Sub": SUB, "Create": CREATE, "Update": UPDATE, "Delete": DELETE, "Get": GET,
                   "List": LIST}  # fmt: skip
_ACTIONS_BY_LOWER: Final = {name.lower(): name for name in _ACTIONS}
_INTERNAL_PREFIXES: Final = ("rmq_sys_", "RMQ_SYS_", DLQ_PREFIX)
_INTERNAL: Final = frozenset((SCHEDULE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC))
_SUPER_ONLY: Final = "rmq_sys_group_tables"  # changes of users in an elected group, with their passwords

CUSTOM: Final = "Custom"
DEFAULT: Final = "Default"
POLICY_TYPES: Final = (CUSTOM, DEFAULT)


class PolicyError(ValueError):
    """An entry that cannot be accepted. The message is the remark of the response."""


# Types of resources. Plain text, because the hash of an enumeration member costs 0.2 us and every request needs several.
ANY: Final = "*"
CLUSTER: Final = "Cluster"
TOPIC: Final = "Topic"
GROUP: Final = "Group"
_TYPES_BY_LOWER: Final = {kind.lower(): kind for kind in (CLUSTER, "Namespace", TOPIC, GROUP)}


class Need(NamedTuple):
    """One permission that a request needs: any one of `actions` on a resource."""

    type: str
    name: str
    actions: int

    @property
    def resource(self) -> str:
        return f"{self.type}:{self.name}"


def is_internal_topic(name: str) -> bool:
    return (name.startswith(_INTERNAL_PREFIXES) or name in _INTERNAL) and name != TRACE_TOPIC


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resource of an entry. Without a `name` it stands for all of its type; a prefix has no `*` at its end."""

    type: str
    name: str | None
    is_prefix: bool = False

    @classmethod
    def parse(cls, text: str | None) -> ResourcePattern:
        """Parse `*`, `Type:*`, `Type:prefix*` or `Type:name`. A prefix ends at its first `*`."""
        text = (text or "").strip()
        if text == "*":
            return cls(ANY, None)
        kind, separator, name = text.partition(":")
        found = _TYPES_BY_LOWER.get(kind.strip().lower())
        name = name.strip()
        if not separator or found is None or not name:
            raise PolicyError("The resource is null.")
        if name == "*":
            return cls(found, None)
        return cls(found, name[: name.index("*")], True) if name.endswith("*") else cls(found, name)

    @property
    def text(self) -> str:
        if self.type == ANY:
            return "*"
        return f"{self.type}:{'' if self.name is None else self.name}{'*' if self.name is None or self.is_prefix else ''}"

    @property
    def is_literal(self) -> bool:
        return self.name is not None and not self.is_prefix

    def fits(self, need: Need) -> bool:
        if self.type == ANY:
            return True
        if self.type != need.type:
            return False
        if self.name is None:
            return True
        return need.name.startswith(self.name) if self.is_prefix else need.name == self.name

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Sort key: the most specific pattern first."""
        kind = 0 if self.is_literal else 1 if self.is_prefix else 2
        return self.type == ANY, kind, -len(self.name or "")


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    resource: ResourcePattern
    action_names: tuple[str, ...]
    sources: tuple[str, ...]
    allows: bool
    actions: int = field(init=False, compare=False, default=0)
    networks: tuple[IPv4Network | IPv6Network, ...] = field(init=False, compare=False, default=())

    def __post_init__(self) -> None:
        mask = 0
        for name in self.action_names:
            mask |= _ACTIONS[name]
        object.__setattr__(self, "actions", mask)
        object.__setattr__(self, "networks", tuple(_network(source) for source in self.sources))

    @classmethod
    def parse(cls, info: PolicyEntryInfo) -> PolicyEntry:
        resource = ResourcePattern.parse(info.resource)
        asked = [name.strip().lower() for name in info.actions or ()]
        if "any" in asked:
            raise PolicyError("The actions can not be Any.")
        names = tuple(dict.fromkeys(_ACTIONS_BY_LOWER[name] for name in asked if name in _ACTIONS_BY_LOWER))
        if not names:
            raise PolicyError("The actions is empty.")
        sources = tuple(source.strip() for source in info.source_ips or ())
        if not all(sources):
            raise PolicyError("The source ip is empty.")
        decision = (info.decision or "").strip().lower()
        if decision not in ("allow", "deny"):
            raise PolicyError("The decision is null or illegal.")
        return cls(resource, names, sources, decision == "allow")

    def info(self) -> PolicyEntryInfo:
        return PolicyEntryInfo(
            self.resource.text, list(self.action_names), list(self.sources) or None, "Allow" if self.allows else "Deny"
        )

    def applies(self, need: Need, address: str) -> bool:
        return bool(self.actions & need.actions) and self.resource.fits(need) and self._comes_from(address)

    def _comes_from(self, address: str) -> bool:
        if not self.networks:
            return True
        try:
            peer = ip_address(address)
        except ValueError:
            return False
        return any(peer.version == network.version and peer in network for network in self.networks)


def _network(source: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(source, strict=False)
    except ValueError:
        raise PolicyError("The source ip is invalid.") from None


class Decision(NamedTuple):
    """The outcome for one need. `reason` completes the remark of a refusal."""

    allowed: bool
    reason: str = ""


ALLOWED: Final = Decision(True)
NO_POLICY: Final = Decision(False, "no matched policies.")
DENIED: Final = Decision(False, "the decision is deny.")


@dataclass(frozen=True, slots=True)
class AccessControlList:
    """The entries of a subject, by policy type."""

    subject: str
    custom: tuple[PolicyEntry, ...] = ()
    default: tuple[PolicyEntry, ...] = ()

    @classmethod
    def from_info(cls, subject: str, info: AclInfo) -> AccessControlList:
        """Validate a list that a request or a file contains."""
        if not info.policies:
            raise PolicyError("The policies is empty.")
        merged = cls(subject)
        for policy in info.policies:
            if not policy.entries:
                raise PolicyError("The policy entries is empty.")
            merged = merged.merged(policy_type(policy.policy_type), [PolicyEntry.parse(entry) for entry in policy.entries])
        return merged

    def info(self) -> AclInfo:
        policies = [
            PolicyInfo(kind, [entry.info() for entry in entries])
            for kind, entries in ((CUSTOM, self.custom), (DEFAULT, self.default))
            if entries
        ]
        return AclInfo(self.subject, policies)

    @property
    def is_empty(self) -> bool:
        return not self.custom and not self.default

    def merged(self, kind: str, entries: Iterable[PolicyEntry]) -> AccessControlList:
        """Return the list with these entries. An entry replaces the one with the same resource."""
        table = {entry.resource: entry for entry in self._entries(kind)}
        table.update((entry.resource, entry) for entry in entries)
        return self._with(kind, tuple(table.values()))

    def updated(self, other: AccessControlList) -> AccessControlList:
        return self.merged(CUSTOM, other.custom).merged(DEFAULT, other.default)

    def without(self, kind: str, resource: ResourcePattern) -> AccessControlList:
        return self._with(kind, tuple(entry for entry in self._entries(kind) if entry.resource != resource))

    def filtered(self, part: str) -> AccessControlList:
        """Return the list with the entries whose resource contains `part`."""
        custom, default = (
            tuple(entry for entry in entries if part in entry.resource.text) for entries in (self.custom, self.default)
        )
        return AccessControlList(self.subject, custom, default)

    def decide(self, need: Need, address: str) -> Decision:
        if need.type == TOPIC and need.name == _SUPER_ONLY:
            return NO_POLICY
        literal_only = need.type == TOPIC and is_internal_topic(need.name)
        for entries in (self.custom, self.default):
            found = [entry for entry in entries if entry.applies(need, address)]
            if literal_only:
                found = [entry for entry in found if entry.resource.is_literal]
            if found:
                best = min(found, key=lambda entry: (entry.resource.rank, entry.allows))
                return ALLOWED if best.allows else DENIED
        return NO_POLICY

    def _entries(self, kind: str) -> Sequence[PolicyEntry]:
        return self.custom if kind == CUSTOM else self.default

    def _with(self, kind: str, entries: tuple[PolicyEntry, ...]) -> AccessControlList:
        if kind == CUSTOM:
            return AccessControlList(self.subject, entries, self.default)
        return AccessControlList(self.subject, self.custom, entries)


def policy_type(text: str | None) -> str:
    """Return Custom or Default. Custom is assumed if the type is not given or unknown."""
    return DEFAULT if (text or "").strip().lower() == DEFAULT.lower() else CUSTOM

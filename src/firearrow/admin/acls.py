"""Access control lists: policies that allow or deny a user actions on resources (ACL 2.0).

A subject is `User:name`; the name alone is accepted. A resource is `Topic:name`, `Group:name`, `Cluster:name` or `*`; a name that
ends in `*` is a prefix. The servers are chosen as for users (`users.server_addresses`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Unpack

from firearrow.admin.cluster import for_each
from firearrow.admin.errors import NotFoundError
from firearrow.admin.users import Servers, encode, for_servers, server_addresses
from firearrow.client.connection.instance import ClientInstance
from firearrow.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from firearrow.wire.fastjson import loads
from firearrow.wire.headers.auth import (
    CreateAclRequestHeader,
    DeleteAclRequestHeader,
    GetAclRequestHeader,
    ListAclsRequestHeader,
    UpdateAclRequestHeader,
)

ACTIONS: Final = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
DECISIONS: Final = ("Allow", "Deny")
POLICY_TYPES: Final = ("Custom", "Default")


@dataclass(frozen=True, slots=True)
class AclEntry:
    """A policy entry as some servers know it."""

    subject: str
    policy_type: str
    resource: str
    actions: tuple[str, ...]
    source_ips: tuple[str, ...]
    decision: str
    servers: tuple[str, ...] = ()


def subject_of(user: str) -> str:
    """Return the subject of a user name; subjects are returned unchanged."""
    return user if ":" in user else f"User:{user}"


def acl_info(
    subject: str,
    resources: Sequence[str],
    actions: Sequence[str],
    *,
    source_ips: Sequence[str] = (),
    decision: str = "Allow",
    policy_type: str | None = None,
) -> AclInfo:
    """Return the body of a request: one policy with an entry per resource."""
    entries = [
        PolicyEntryInfo(resource, list(actions), list(source_ips) if source_ips else None, decision) for resource in resources
    ]
    return AclInfo(subject, [PolicyInfo(policy_type, entries)])


async def create_acl(
    client: ClientInstance,
    subject: str,
    resources: Sequence[str],
    actions: Sequence[str],
    *,
    source_ips: Sequence[str] = (),
    decision: str = "Allow",
    policy_type: str | None = None,
    **servers: Unpack[Servers],
) -> list[str]:
    """Add entries for resources; existing entries with the same resource are replaced. Returns the addresses of the servers."""
    subject = subject_of(subject)
    acl = acl_info(subject, resources, actions, source_ips=source_ips, decision=decision, policy_type=policy_type)
    return await for_servers(client, servers, lambda address: put_acl(client, address, acl, exists=False))


async def update_acl(
    client: ClientInstance,
    subject: str,
    resources: Sequence[str],
    actions: Sequence[str],
    *,
    source_ips: Sequence[str] = (),
    decision: str = "Allow",
    policy_type: str | None = None,
    **servers: Unpack[Servers],
) -> list[str]:
    """Replace the entries for resources. Returns the addresses of the servers."""
    subject = subject_of(subject)
    acl = acl_info(subject, resources, actions, source_ips=source_ips, decision=decision, policy_type=policy_type)
    return await for_servers(client, servers, lambda address: put_acl(client, address, acl, exists=True))


async def put_acl(client: ClientInstance, address: str, acl: AclInfo, *, exists: bool) -> None:
    """Create or update an access control list on one server."""
    header = (UpdateAclRequestHeader if exists else CreateAclRequestHeader)(subject=acl.subject or "")
    await client.check(address, header, encode(acl))


async def delete_acl(
    client: ClientInstance,
    subject: str,
    *,
    resource: str | None = None,
    policy_type: str | None = None,
    **servers: Unpack[Servers],
) -> list[str]:
    """Delete the entry for a resource, or the whole list. Returns the addresses of the servers."""
    header = DeleteAclRequestHeader(subject=subject_of(subject), policy_type=policy_type, resource=resource)
    return await for_servers(client, servers, lambda address: client.check(address, header))


async def find_acl(client: ClientInstance, address: str, subject: str) -> AclInfo | None:
    """Return the access control list of a subject on one server; None if it has none."""
    body = (await client.check(address, GetAclRequestHeader(subject=subject_of(subject)))).body
    return AclInfo.from_json(loads(body)) if body else None


async def acls_on(client: ClientInstance, address: str, subject: str | None = None, resource: str | None = None) -> list[AclInfo]:
    """Return the access control lists of one server whose subject and resources contain these texts."""
    body = (await client.check(address, ListAclsRequestHeader(subject_filter=subject, resource_filter=resource))).body
    return [AclInfo.from_json(one) for one in loads(body)] if body else []


async def list_acls(
    client: ClientInstance, *, subject: str | None = None, resource: str | None = None, **servers: Unpack[Servers]
) -> list[AclEntry]:
    """Return the entries of all servers whose subject and resource contain these texts."""
    addresses = await server_addresses(client, **servers)
    known: dict[AclEntry, list[str]] = {}
    answers = await for_each(addresses, lambda one: acls_on(client, one, subject, resource))
    for address, acls in zip(addresses, answers, strict=True):
        for acl in acls:
            for entry in entries_of(acl):
                known.setdefault(entry, []).append(address)
    return [
        AclEntry(one.subject, one.policy_type, one.resource, one.actions, one.source_ips, one.decision, tuple(on))
        for one, on in sorted(known.items(), key=lambda item: (item[0].subject, item[0].policy_type, item[0].resource))
    ]


async def get_acl(client: ClientInstance, subject: str, **servers: Unpack[Servers]) -> list[AclEntry]:
    """Return the entries of a subject. Raises NotFoundError if it has none."""
    wanted = subject_of(subject)
    found = [entry for entry in await list_acls(client, subject=wanted, **servers) if entry.subject == wanted]
    if not found:
        raise NotFoundError(f"{wanted} has no access control list; create one with firearrow acl create")
    return found


async def copy_acl(client: ClientInstance, subject: str, source: str, target: str) -> None:
    """Copy an access control list from one server to another."""
    acl = await find_acl(client, source, subject)
    if acl is None:
        raise NotFoundError(f"{subject_of(subject)} has no access control list on {source}")
    await put_acl(client, target, acl, exists=await find_acl(client, target, subject) is not None)


def entries_of(acl: AclInfo) -> list[AclEntry]:
    """Return the entries of all policies of an access control list."""
    return [
        AclEntry(
            acl.subject or "",
            policy.policy_type or "Custom",
            entry.resource or "",
            tuple(entry.actions or ()),
            tuple(entry.source_ips or ()),
            entry.decision or "",
        )
        for policy in acl.policies
        for entry in policy.entries
    ]

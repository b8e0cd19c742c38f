"""Users of brokers and name servers (ACL 2.0).

Every server has its own users. Our brokers copy them to their replicas. Apache's do not: `replicas=True` changes slaves too. Our
name servers have users as well if they check signatures; Apache's have none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypedDict, Unpack

import orjson

from firearrow.admin.cluster import for_each, list_brokers, masters
from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.errors import BrokerError
from firearrow.wire.bodies.auth import UserInfo
from firearrow.wire.body_schema import Body
from firearrow.wire.codes import ResponseCode
from firearrow.wire.fastjson import loads
from firearrow.wire.headers.auth import (
    CreateUserRequestHeader,
    DeleteUserRequestHeader,
    GetUserRequestHeader,
    ListUsersRequestHeader,
    UpdateUserRequestHeader,
)

USER_TYPES: Final = ("Normal", "Super")
USER_STATUSES: Final = ("enable", "disable")
HIDDEN_PASSWORD: Final = "******"


@dataclass(frozen=True, slots=True)
class UserEntry:
    """A user as some servers know it. Servers that know it differently have an entry of their own."""

    username: str
    user_type: str
    user_status: str
    servers: tuple[str, ...]


class Servers(TypedDict, total=False):
    """The choice of servers; by default the masters of all brokers, and the name servers that check signatures.

    cluster        the masters of a cluster
    broker         the master of a broker name, or the broker at an address
    name_servers   the name servers instead of brokers
    replicas       the slaves too
    """

    cluster: str | None
    broker: str | None
    name_servers: bool
    replicas: bool


async def server_addresses(client: ClientInstance, **servers: Unpack[Servers]) -> list[str]:
    """Return the addresses of the chosen servers: masters, slaves, name servers."""
    cluster, broker = servers.get("cluster"), servers.get("broker")
    if servers.get("name_servers"):
        return list(client.options.name_servers)
    if broker is not None and ":" in broker:
        return [broker]  # users are managed also before the broker is registered
    if servers.get("replicas"):
        found = await list_brokers(client, cluster=cluster, broker=broker)
    else:
        found = await masters(client, cluster, broker)
    addresses = [one.address for one in sorted(found, key=lambda one: (not one.is_master, one))]
    if cluster is None and broker is None:
        addresses += [address for address in client.options.name_servers if await _has_users(client, address)]
    return list(dict.fromkeys(addresses))


async def _has_users(client: ClientInstance, name_server: str) -> bool:
    """Return whether a name server has users. Apache's do not know the request; ours reject it unless they check signatures."""
    try:
        await users_on(client, name_server)
    except BrokerError as error:
        if error.code not in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR):
            raise
        return False
    return True


async def create_user(
    client: ClientInstance, username: str, password: str, *, user_type: str = "Normal", **servers: Unpack[Servers]
) -> list[str]:
    """Create a user. Returns the addresses of the servers."""
    user = UserInfo(username=username, password=password, user_type=user_type)
    return await for_servers(client, servers, lambda address: put_user(client, address, user, exists=False))


async def update_user(
    client: ClientInstance,
    username: str,
    *,
    password: str | None = None,
    user_type: str | None = None,
    user_status: str | None = None,
    **servers: Unpack[Servers],
) -> list[str]:
    """Change the given properties of a user. Returns the addresses of the servers."""
    user = UserInfo(username=username, password=password, user_type=user_type, user_status=user_status)
    return await for_servers(client, servers, lambda address: put_user(client, address, user, exists=True))


async def put_user(client: ClientInstance, address: str, user: UserInfo, *, exists: bool) -> None:
    """Create a user on one server, or change it if it exists."""
    header = (UpdateUserRequestHeader if exists else CreateUserRequestHeader)(username=user.username or "")
    await client.check(address, header, encode(user))


async def delete_user(client: ClientInstance, username: str, **servers: Unpack[Servers]) -> list[str]:
    """Delete a user and its policies; nothing happens where it does not exist. Returns the addresses of the servers."""
    header = DeleteUserRequestHeader(username=username)
    return await for_servers(client, servers, lambda address: client.check(address, header))


async def find_user(client: ClientInstance, address: str, username: str) -> UserInfo | None:
    """Return a user of one server; None if it does not exist there. Servers hide passwords from most callers."""
    body = (await client.check(address, GetUserRequestHeader(username=username))).body
    return UserInfo.from_json(loads(body)) if body else None


async def users_on(client: ClientInstance, address: str, like: str | None = None) -> list[UserInfo]:
    """Return the users of one server whose name contains `like`."""
    body = (await client.check(address, ListUsersRequestHeader(filter=like))).body
    return [UserInfo.from_json(one) for one in loads(body)] if body else []


async def list_users(client: ClientInstance, *, like: str | None = None, **servers: Unpack[Servers]) -> list[UserEntry]:
    """Return the users of all servers, without their passwords."""
    addresses = await server_addresses(client, **servers)
    known: dict[tuple[str, str, str], list[str]] = {}
    for address, users in zip(addresses, await for_each(addresses, lambda one: users_on(client, one, like)), strict=True):
        for user in users:
            key = (user.username or "", user.user_type or "", user.user_status or "")
            known.setdefault(key, []).append(address)
    return [UserEntry(*key, tuple(on)) for key, on in sorted(known.items())]


async def get_user(client: ClientInstance, username: str, **servers: Unpack[Servers]) -> list[UserEntry]:
    """Return a user; several entries if servers know it differently. Raises NotFoundError if none knows it."""
    found = [user for user in await list_users(client, like=username, **servers) if user.username == username]
    if not found:
        raise NotFoundError(f"user {username!r} does not exist; create it with firearrow user create")
    return found


async def copy_user(client: ClientInstance, username: str, source: str, target: str) -> None:
    """Copy a user with its password from one server to another. Only Super users may read passwords."""
    user = await find_user(client, source, username)
    if user is None:
        raise NotFoundError(f"user {username!r} does not exist on {source}")
    if user.password in (None, "", HIDDEN_PASSWORD):
        raise AdminError(f"{source} does not reveal the password of {username!r}; ask with the credentials of a Super user")
    await put_user(client, target, user, exists=await find_user(client, target, username) is not None)


async def for_servers(client: ClientInstance, servers: Servers, change: Callable[[str], Awaitable[object]]) -> list[str]:
    """Make a change on each of the servers in turn. The first error ends it. Returns their addresses."""
    addresses = await server_addresses(client, **servers)
    for address in addresses:
        await change(address)
    return addresses


def encode(body: Body) -> bytes:
    return orjson.dumps(body.to_json())

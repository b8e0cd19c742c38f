"""`firearrow mqadmin`: users and access control lists."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import click

from firearrow.admin.acls import entries_of
from firearrow.admin.aio import Admin
from firearrow.cli.mqadmin.format import print_lines, print_titles
from firearrow.wire.bodies.auth import AclInfo, UserInfo


async def create_user(admin: Admin, options: SimpleNamespace) -> None:
    for server in await _changed_servers(admin, options):
        await admin.create_user(options.username, options.password, user_type=options.userType, broker=server)
        print_lines(f"create user to {server} success.")


async def update_user(admin: Admin, options: SimpleNamespace) -> None:
    given = {"password": options.password, "user_type": options.userType, "user_status": options.userStatus}
    if not any(given.values()):
        raise click.UsageError("nothing to change; expected -p, -t or -s")
    for server in await _changed_servers(admin, options):
        await admin.update_user(options.username, broker=server, **given)
        print_lines(f"update user to {server} success.")


async def delete_user(admin: Admin, options: SimpleNamespace) -> None:
    if options.confirmed(f"delete the user {options.username} and its permissions"):
        for server in await _changed_servers(admin, options):
            await admin.delete_user(options.username, broker=server)
            print_lines(f"delete user to {server} success.")


async def get_user(admin: Admin, options: SimpleNamespace) -> None:
    for server in await _read_servers(admin, options):
        found = await admin.find_user(server, options.username)
        if found is not None:
            _print_users([found])
            print_lines(f"get user from {server} success.")


async def list_user(admin: Admin, options: SimpleNamespace) -> None:
    for server in await _read_servers(admin, options):
        found = await admin.users_on(server, options.filter)
        if found:
            _print_users(found)
            print_lines(f"get user from {server} success.")


async def copy_user(admin: Admin, options: SimpleNamespace) -> None:
    names = _words(options.username) or [user.username or "" for user in await admin.users_on(options.fromBroker)]
    for name in names:
        await admin.copy_user(name, options.fromBroker, options.toBroker)
        print_lines(f"copy user of {name} from {options.fromBroker} to {options.toBroker} success.")


async def create_acl(admin: Admin, options: SimpleNamespace) -> None:
    for server in await _changed_servers(admin, options):
        await admin.create_acl(options.subject, **_entry(options), broker=server)
        print_lines(f"create acl to {server} success.")


async def update_acl(admin: Admin, options: SimpleNamespace) -> None:
    for server in await _changed_servers(admin, options):
        await admin.update_acl(options.subject, **_entry(options), broker=server)
        print_lines(f"update acl to {server} success.")


async def delete_acl(admin: Admin, options: SimpleNamespace) -> None:
    if options.confirmed(f"delete the permissions of {options.subject} on {options.resources or 'all resources'}"):
        for server in await _changed_servers(admin, options):
            await admin.delete_acl(options.subject, resource=options.resources, policy_type=options.policyType, broker=server)
            print_lines(f"delete acl to {server} success.")


async def get_acl(admin: Admin, options: SimpleNamespace) -> None:
    for server in await _read_servers(admin, options):
        found = await admin.find_acl(server, options.subject)
        if found is not None:
            _print_acls([found])


async def list_acl(admin: Admin, options: SimpleNamespace) -> None:
    for server in await _read_servers(admin, options):
        found = await admin.acls_on(server, options.subject, options.resource)
        if found:
            _print_acls(found)
            print_lines(f"list acls from {server} success.")
        else:
            print_lines("there is no acl found.")


async def copy_acl(admin: Admin, options: SimpleNamespace) -> None:
    subjects = _words(options.subjects) or [acl.subject or "" for acl in await admin.acls_on(options.fromBroker)]
    for subject in subjects:
        await admin.copy_acl(subject, options.fromBroker, options.toBroker)
        print_lines(f"copy acl of {subject} from {options.fromBroker} to {options.toBroker} success.")


async def _changed_servers(admin: Admin, options: SimpleNamespace) -> list[str]:
    """Return the broker of -b, or the masters and slaves of the cluster of -c."""
    return await _servers(admin, options, masters_only=False)


async def _read_servers(admin: Admin, options: SimpleNamespace) -> list[str]:
    """Return the broker of -b, or the masters of the cluster of -c."""
    return await _servers(admin, options, masters_only=True)


async def _servers(admin: Admin, options: SimpleNamespace, *, masters_only: bool) -> list[str]:
    if options.brokerAddr:
        return [options.brokerAddr.strip()]
    if options.clusterName:
        found = await admin.list_brokers(cluster=options.clusterName, masters_only=masters_only)
        return [one.address for one in sorted(found, key=lambda one: (not one.is_master, one))]
    raise click.UsageError("no broker given; expected -b ADDRESS or -c CLUSTER")


def _entry(options: SimpleNamespace) -> dict[str, Any]:
    return {
        "resources": _words(options.resources),
        "actions": _words(options.actions),
        "source_ips": _words(options.sourceIp),
        "decision": options.decision,
    }


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _print_users(users: Iterable[UserInfo]) -> None:
    print_row = print_titles("{:<16}  {:<22}  {:<22}  {:<22}", "#UserName", "#Password", "#UserType", "#UserStatus")
    for one in users:
        print_row(*(cell or "null" for cell in (one.username, one.password, one.user_type, one.user_status)))


def _print_acls(acls: Iterable[AclInfo]) -> None:
    titles = ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
    print_row = print_titles("{:<16}  {:<10}  {:<22}  {:<20}  {:<24}  {:<10}", *titles)
    for acl in acls:
        if not acl.policies:
            print_row(acl.subject or "null", "", "", "", "", "")
        for one in entries_of(acl):
            source_ips = f"[{', '.join(one.source_ips)}]" if one.source_ips else "null"
            print_row(one.subject, one.policy_type, one.resource, f"[{', '.join(one.actions)}]", source_ips, one.decision)

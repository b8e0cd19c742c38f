"""`firearrow acl`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import click

from firearrow.admin.acls import ACTIONS, DECISIONS, POLICY_TYPES
from firearrow.admin.aio import Admin
from firearrow.cli.command import Group, options
from firearrow.cli.operator.user import checked_servers, replica_option, server_options
from firearrow.cli.terminal import Output, plural

COLUMNS: Final = ["subject", "policy_type", "resource", "actions", "source_ips", "decision", "servers"]

acl = Group("acl")


def _choice(*words: str) -> click.Choice[str]:
    return click.Choice(words, case_sensitive=False)


user_argument = click.argument("subject", metavar="USER")
policy_option = click.option(
    "--policy", "policy_type", type=_choice(*POLICY_TYPES), help="Custom entries come first.  [default: Custom]"
)
entry_options = options(
    click.option(
        "--resource",
        "resources",
        metavar="TYPE:NAME",
        multiple=True,
        required=True,
        help="Topic:Orders, Group:billing, Topic:order-*, Cluster:NAME or *. Repeatable.",
    ),
    click.option("--action", "actions", type=_choice(*ACTIONS), multiple=True, required=True, help="Repeatable."),
    click.option(
        "--source-ip", "source_ips", metavar="ADDRESS", multiple=True, help="Address or network. Repeatable.  [default: all]"
    ),
    click.option("--decision", type=_choice(*DECISIONS), default="Allow", show_default=True, help="What the entry does."),
    policy_option,
    server_options,
    replica_option,
)


@acl.admin_command("create", epilog="Example: firearrow acl create billing --resource Topic:Orders --action Sub --action Get")
@user_argument
@entry_options
async def create(admin: Admin, out: Output, subject: str, **entry: Any) -> None:
    """Add permissions of a user. An entry with the same resource is replaced."""
    _print_changed(out, "added", subject, await admin.create_acl(subject, **_checked(entry)), entry)


@acl.admin_command("update")
@user_argument
@entry_options
async def update(admin: Admin, out: Output, subject: str, **entry: Any) -> None:
    """Replace permissions of a user on resources."""
    _print_changed(out, "changed", subject, await admin.update_acl(subject, **_checked(entry)), entry)


@acl.admin_command("delete", destructive=True)
@user_argument
@click.option("--resource", metavar="TYPE:NAME", help="Only the entry of this resource.  [default: all]")
@policy_option
@server_options
@replica_option
async def delete(admin: Admin, out: Output, subject: str, resource: str | None, policy_type: str | None, **servers: Any) -> None:
    """Delete the permissions of a user."""
    what = f"the permissions of {subject}" + (f" on {resource}" if resource else "")
    if out.confirmed(f"delete {what}"):
        changed = await admin.delete_acl(subject, resource=resource, policy_type=policy_type, **checked_servers(servers))
        out.done(f"deleted {what} on {plural(len(changed), 'server')}", subject=subject, resource=resource, servers=changed)


@acl.admin_command("get")
@user_argument
@server_options
async def get(admin: Admin, out: Output, subject: str, **servers: Any) -> None:
    """Show the permissions of a user."""
    out.rows([asdict(one) for one in await admin.get_acl(subject, **checked_servers(servers))], COLUMNS)


@acl.admin_command("list")
@click.option("--user", "subject", metavar="TEXT", help="Only users whose name contains this text.")
@click.option("--resource", metavar="TEXT", help="Only resources that contain this text.")
@server_options
async def list_acls(admin: Admin, out: Output, subject: str | None, resource: str | None, **servers: Any) -> None:
    """List the permissions of all users."""
    found = await admin.list_acls(subject=subject, resource=resource, **checked_servers(servers))
    out.rows([asdict(one) for one in found], COLUMNS)


def _checked(entry: dict[str, Any]) -> dict[str, Any]:
    checked_servers(entry)
    return entry


def _print_changed(out: Output, verb: str, subject: str, servers: list[str], entry: dict[str, Any]) -> None:
    resources = list(entry["resources"])
    sentence = f"{verb} the permissions of {subject} on {', '.join(resources)} on {plural(len(servers), 'server')}"
    out.done(sentence, subject=subject, resources=resources, actions=list(entry["actions"]), servers=servers)

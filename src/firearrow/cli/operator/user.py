"""`firearrow user`."""

from __future__ import annotations

import secrets
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from firearrow.admin.aio import Admin
from firearrow.admin.users import USER_STATUSES, USER_TYPES
from firearrow.cli.arguments import BROKER, CLUSTER
from firearrow.cli.command import Group, at_most_one, options
from firearrow.cli.terminal import Output, plural

COLUMNS: Final = ["username", "user_type", "user_status", "servers"]
_GENERATED_BYTES: Final = 24

user = Group("user")


name_argument = click.argument("username", metavar="NAME")
server_options = options(
    click.option("--cluster", type=CLUSTER, help="Only brokers of this cluster.  [default: all servers]"),
    click.option("--broker", type=BROKER, help="Only this broker, by name or address."),
    click.option("--name-servers", is_flag=True, help="The name servers instead of brokers."),
)
replica_option = click.option("--replicas", is_flag=True, help="Slaves too; Apache's brokers do not copy users to them.")
type_option = click.option("--type", "user_type", type=click.Choice(USER_TYPES, case_sensitive=False), help="Super: may do all.")
password_options = options(
    click.option("--password-file", metavar="FILE", help="File with the password, the user's secret key; -: standard input."),
    click.option("--generate", is_flag=True, help="Create a random password and print it."),
)


@user.admin_command("create", epilog="Example: firearrow user create billing --generate")
@name_argument
@type_option
@password_options
@server_options
@replica_option
async def create(
    admin: Admin, out: Output, username: str, user_type: str | None, password_file: str | None, generate: bool, **servers: Any
) -> None:
    """Create a user. Without --password-file and --generate, the password is read from the terminal."""
    password = read_password(password_file, generate) or _prompt_password()
    changed = await admin.create_user(username, password, user_type=user_type or "Normal", **checked_servers(servers))
    _print_changed(out, f"created user {username}", username, changed, password if generate else None)


@user.admin_command("update", epilog="Example: firearrow user update billing --status disable")
@name_argument
@type_option
@click.option("--status", "user_status", type=click.Choice(USER_STATUSES), help="A disabled user is rejected.")
@password_options
@server_options
@replica_option
async def update(
    admin: Admin,
    out: Output,
    username: str,
    user_type: str | None,
    user_status: str | None,
    password_file: str | None,
    generate: bool,
    **servers: Any,
) -> None:
    """Change the type, the status or the password of a user."""
    password = read_password(password_file, generate)
    if password is user_type is user_status is None:
        raise click.UsageError("nothing to change; expected --type, --status, --password-file or --generate")
    changed = await admin.update_user(
        username, password=password, user_type=user_type, user_status=user_status, **checked_servers(servers)
    )
    _print_changed(out, f"changed user {username}", username, changed, password if generate else None)


@user.admin_command("delete", destructive=True)
@name_argument
@server_options
@replica_option
async def delete(admin: Admin, out: Output, username: str, **servers: Any) -> None:
    """Delete a user and its permissions."""
    if out.confirmed(f"delete the user {username} and its permissions"):
        _print_changed(out, f"deleted user {username}", username, await admin.delete_user(username, **checked_servers(servers)))


@user.admin_command("get")
@name_argument
@server_options
async def get(admin: Admin, out: Output, username: str, **servers: Any) -> None:
    """Show a user."""
    out.rows([asdict(one) for one in await admin.get_user(username, **checked_servers(servers))], COLUMNS)


@user.admin_command("list")
@click.option("--like", metavar="TEXT", help="Only users whose name contains this text.")
@server_options
async def list_users(admin: Admin, out: Output, like: str | None, **servers: Any) -> None:
    """List users."""
    out.rows([asdict(one) for one in await admin.list_users(like=like, **checked_servers(servers))], COLUMNS)


def checked_servers(servers: dict[str, Any]) -> dict[str, Any]:
    """Return the options that choose servers, if they do not contradict each other."""
    at_most_one(cluster=servers["cluster"], broker=servers["broker"], name_servers=servers["name_servers"])
    return servers


def read_password(file: str | None, generate: bool) -> str | None:
    """Return the password of the options; None if none is given."""
    at_most_one(password_file=file, generate=generate)
    if generate:
        return secrets.token_urlsafe(_GENERATED_BYTES)
    if file is None:
        return None
    text = sys.stdin.readline() if file == "-" else Path(file).read_text(encoding="utf-8")
    password = text.strip("\r\n")
    if not password:
        raise click.UsageError(f"--password-file {file} is empty")
    return password


def _prompt_password() -> str:
    if not sys.stdin.isatty():
        raise click.UsageError("no password; without a terminal, pass --password-file or --generate")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


def _print_changed(out: Output, what: str, username: str, servers: list[str], password: str | None = None) -> None:
    secret = {} if password is None else {"password": password}
    out.done(f"{what} on {plural(len(servers), 'server')}", username=username, servers=servers, **secret)
    if password is not None:
        out.text(f"password: {password}")

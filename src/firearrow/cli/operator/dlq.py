"""`firearrow dlq`."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from firearrow.admin.aio import Admin
from firearrow.admin.dead_letters import DeadLetter, export_line, import_line
from firearrow.admin.errors import AdminError
from firearrow.cli.arguments import GROUP, RATE, TOPIC
from firearrow.cli.command import FAILURE, SUCCESS, Group, fail, options
from firearrow.cli.operator.message import body_option, filter_options, id_argument, limit_option, print_record
from firearrow.cli.terminal import Output, plural, short_body

dlq = Group("dlq")


group_argument = click.argument("group", type=GROUP)


dead_letter_filters = options(
    filter_options, click.option("--topic", type=TOPIC, help="Only messages that were sent to this topic.")
)
target_options = options(
    click.option(
        "--to",
        metavar="WHERE",
        default="group",
        show_default=True,
        help="group: the group that failed. origin: the original topic, for all its groups. Any other word is a topic.",
    ),
    click.option("--rate", metavar="N", type=RATE, help="At most N messages per second."),
)


@dlq.admin_command("list")
@click.argument("group", type=GROUP, required=False)
@dead_letter_filters
@limit_option
async def list_dead_letters(admin: Admin, out: Output, group: str | None, limit: int, **filters: Any) -> None:
    """List groups that have dead letters, or the dead letters of a group."""
    if group is None:
        out.rows([asdict(one) for one in await admin.dead_letter_counts()], ["group", "messages", "last_stored_ms"])
        return
    letters = await _select(admin, out, group, limit, filters)
    rows = [_row(one) | ({"body": short_body(one.body)} if out.for_people else {}) for one in letters]
    out.rows(rows, ["msg_id", "topic", "stored_ms", "reconsume_times", "tags", "keys", "body"])


@dlq.admin_command("show")
@group_argument
@id_argument
@body_option
async def show(admin: Admin, out: Output, group: str, msg_id: str, body_form: str) -> None:
    """Show a dead letter."""
    letter = await admin.find_dead_letter(group, msg_id)
    print_record(out, _row(letter) | {"properties": dict(letter.properties)}, letter.body, body_form)


@dlq.admin_command("resend", epilog="Example: firearrow dlq resend billing --all --rate 50", destructive=True)
@group_argument
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All dead letters of the group.")
@dead_letter_filters
@target_options
async def resend(
    admin: Admin, out: Output, group: str, ids: tuple[str, ...], everything: bool, to: str, rate: float | None, **filters: Any
) -> int:
    """Send dead letters again, to the group that failed or to a topic."""
    filtered = any(value is not None for value in filters.values())
    if [bool(ids), everything, filtered].count(True) != 1:
        raise click.UsageError(
            "which dead letters? expected ids, --all, or a filter: --from --until --tag --key --contains --topic"
        )
    if ids:
        letters = [await admin.find_dead_letter(group, msg_id) for msg_id in ids]
    else:
        letters = await _select(admin, out, group, None, filters)
    return await _resend(admin, out, letters, to, rate)


@dlq.admin_command("export")
@group_argument
@click.argument("file", metavar="FILE")
@dead_letter_filters
async def export(admin: Admin, out: Output, group: str, file: str, **filters: Any) -> None:
    """Write dead letters to FILE, one JSON object per line; `-` is standard output. An existing file is not overwritten."""
    letters = await _select(admin, out, group, None, filters)
    lines = "".join(export_line(letter) + "\n" for letter in letters)
    if file == "-":
        sys.stdout.write(lines)
        return
    _write_new_file(file, lines)
    out.done(f"wrote {plural(len(letters), 'dead letter')} of {group} to {file}", group=group, count=len(letters))


@dlq.admin_command("import", destructive=True)
@click.argument("file", metavar="FILE")
@target_options
async def import_dead_letters(admin: Admin, out: Output, file: str, to: str, rate: float | None) -> int:
    """Send the dead letters of an export again; `-` is standard input."""
    return await _resend(admin, out, _read_export(file), to, rate)


def _read_export(file: str) -> list[DeadLetter]:
    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    letters = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                letters.append(import_line(line))
            except AdminError as error:
                raise AdminError(f"{file}, line {number}: {error}; nothing was sent") from None
    return letters


def _write_new_file(file: str, text: str) -> None:
    with open(file, "x", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


async def _select(admin: Admin, out: Output, group: str, limit: int | None, filters: dict[str, Any]) -> list[DeadLetter]:
    with closing(out.progress("reading")) as progress:
        return await admin.dead_letters_of(group, max_messages=limit, progress=progress, **filters)


async def _resend(admin: Admin, out: Output, letters: list[DeadLetter], to: str, rate: float | None) -> int:
    if not letters:
        raise AdminError("no dead letter matches")
    where = {"group": "to the group that failed", "origin": "to their original topics"}.get(to, f"to {to}")
    if not out.confirmed(f"send {plural(len(letters), 'dead letter')} again {where}"):
        return SUCCESS
    with closing(out.progress("sending")) as progress:
        result = await admin.resend_dead_letters(letters, to=to, rate=rate, progress=progress)
    out.done(f"sent {result.sent:,} again, {result.failed:,} failed", **asdict(result))
    if result.failed:
        fail(f"first failure: {result.first_failure}")
    return FAILURE if result.failed else SUCCESS


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "msg_id": letter.msg_id, "group": letter.group, "topic": letter.topic, "stored_ms": letter.stored_ms,
        "reconsume_times": letter.reconsume_times, "tags": letter.tags, "keys": list(letter.keys), "size": len(letter.body),
        "body": letter.body.decode(errors="backslashreplace"),
    }  # fmt: skip

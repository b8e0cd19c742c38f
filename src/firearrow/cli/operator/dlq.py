"""`firearrow dlq ...`"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from typing import Any

from firearrow.admin import dead_letters
from firearrow.admin.aio import Admin
from firearrow.admin.dead_letters import DeadLetter, Resent
from firearrow.admin.errors import AdminError
from firearrow.cli.arguments import CommandGroup, UsageError, add_filters, count, rate
from firearrow.cli.asking import ProgressBar, confirmed
from firearrow.cli.terminal import Output, body_text


def add(verbs: CommandGroup) -> None:
    listing = verbs.add("list", list_, "list groups with dead letters, or the dead letters of a group")
    listing.add_argument("group", metavar="GROUP", nargs="?")
    _add_filters(listing)
    listing.add_argument("--limit", metavar="N", type=count, default=100, help="end after so many (default: %(default)s)")

    show = verbs.add("show", show_, "show a dead letter")
    show.add_argument("group", metavar="GROUP")
    show.add_argument("msg_id", metavar="ID")
    show.add_argument("--body", choices=("auto", "text", "json", "hex"), default="auto", help="default: %(default)s")

    resend = verbs.add(
        "resend",
        resend_,
        "send dead letters again, to the group that failed or to their topic",
        destroys=True,
        example="dlq resend billing --all --rate 50",
    )
    resend.add_argument("group", metavar="GROUP")
    resend.add_argument("ids", metavar="ID", nargs="*", help="these")
    resend.add_argument("--all", action="store_true", help="all of them")
    _add_filters(resend)
    _add_target(resend)

    export = verbs.add("export", export_, "write dead letters to a file, one JSON object a line")
    export.add_argument("group", metavar="GROUP")
    export.add_argument("file", metavar="FILE", help="-: to standard output")
    _add_filters(export)

    import_ = verbs.add("import", import_dead_letters, "send the dead letters of a file again", destroys=True)
    import_.add_argument("file", metavar="FILE", help="-: from standard input")
    _add_target(import_)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    add_filters(parser)
    parser.add_argument("--topic", help="that came from this topic")


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to",
        metavar="WHERE",
        default="group",
        help="group: only to the group that failed; origin: to the topic it came from; or a topic (default: %(default)s)",
    )
    parser.add_argument("--rate", metavar="N", type=rate, help="so many a second at most")


async def list_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    if options.group is None:
        out.rows([asdict(one) for one in await admin.dead_letter_counts()], ["group", "messages", "last_stored_ms"])
        return
    letters = await _filtered(admin, options, options.limit)
    columns = ["msg_id", "topic", "stored_ms", "reconsume_times", "tags", "keys", "body"]
    out.rows([_row(one, short=out.form == "table") for one in letters], columns)


async def show_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    letter = await admin.find_dead_letter(options.group, options.msg_id)
    row = _row(letter, short=False) | {"properties": dict(letter.properties), "body": body_text(letter.body, options.body)}
    if out.form != "table":
        out.record(row)
        return
    body = row.pop("body")
    properties = row.pop("properties")
    out.record(row)
    for name, value in properties.items():
        out.text(f"  {name}={value}")
    out.text(f"\n{body}")


async def resend_(admin: Admin, options: argparse.Namespace, out: Output) -> int:
    filtered = any(
        value is not None for value in (options.begin, options.end, options.tag, options.key, options.contains, options.topic)
    )
    if [bool(options.ids), options.all, filtered].count(True) != 1:
        raise UsageError("which ones? expected ids, or --all, or one or more of --from --until --tag --key --contains --topic")
    if options.ids:
        letters = [await admin.find_dead_letter(options.group, msg_id) for msg_id in options.ids]
    else:
        letters = await _filtered(admin, options, None)
    return await _send_again(admin, options, out, letters)


async def export_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    letters = await _filtered(admin, options, None)
    lines = "".join(dead_letters.exported(letter) + "\n" for letter in letters)
    if options.file == "-":
        sys.stdout.write(lines)
        return
    with open(options.file, "x", encoding="utf-8") as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())
    out.done(f"wrote {len(letters):,} dead letters of {options.group} to {options.file}", group=options.group, count=len(letters))


async def import_dead_letters(admin: Admin, options: argparse.Namespace, out: Output) -> int:
    if options.file == "-":
        text = sys.stdin.read()
    else:
        with open(options.file, encoding="utf-8") as file:
            text = file.read()
    letters = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                letters.append(dead_letters.imported(line))
            except AdminError as error:
                raise AdminError(f"{options.file}, line {number}: {error}; nothing was sent") from None
    return await _send_again(admin, options, out, letters)


async def _filtered(admin: Admin, options: argparse.Namespace, limit: int | None) -> list[DeadLetter]:
    bar = ProgressBar("reading")
    letters = await admin.dead_letters_of(
        options.group,
        begin=options.begin,
        end=options.end,
        topic=options.topic,
        tag=options.tag,
        key=options.key,
        contains=options.contains,
        max_messages=limit,
        progress=bar,
    )
    bar.clear()
    return letters


async def _send_again(admin: Admin, options: argparse.Namespace, out: Output, letters: list[DeadLetter]) -> int:
    if not letters:
        raise AdminError("no dead letter is like that")
    where = {"group": "to the group that failed", "origin": "to the topics they came from"}.get(options.to, f"to {options.to}")
    if not confirmed(options, f"send {len(letters):,} dead letters again, {where}"):
        return 0
    bar = ProgressBar("sending")
    result: Resent = await admin.resend_dead_letters(letters, to=options.to, rate=options.rate, progress=bar)
    bar.clear()
    out.done(f"sent {result.sent:,} again, {result.failed:,} failed", **asdict(result))
    if result.failed:
        print(f"firearrow dlq: the first failure: {result.first_failure}", file=sys.stderr)
    return 1 if result.failed else 0


def _row(letter: DeadLetter, *, short: bool) -> dict[str, Any]:
    text = body_text(letter.body, "text")
    if short:
        text = " ".join(text.split())
        text = text if len(text) <= 60 else f"{text[:57]}..."
    return {
        "msg_id": letter.msg_id, "group": letter.group, "topic": letter.topic, "stored_ms": letter.stored_ms,
        "reconsume_times": letter.reconsume_times, "tags": letter.tags, "keys": list(letter.keys), "size": len(letter.body),
        "body": text,
    }  # fmt: skip

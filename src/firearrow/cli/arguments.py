"""What the commands of operators have in common: how they are declared and how their words are read.

Nothing but the standard library is loaded here. Wrong words are one line on standard error that says what was expected, and exit
code 2.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from firearrow.cli.messages.arguments import DEFAULT_NAME_SERVER, UNITS

if TYPE_CHECKING:
    from firearrow.admin.aio import Admin
    from firearrow.cli.terminal import Output

# noun -> what it is about. Each is a module of this package.
NOUNS: Final = {
    "topic": "topics: list, create, alter, delete, status, route, order",
    "group": "consumer groups: list, create, alter, delete, progress, members",
    "message": "messages: find, show, peek, track, resend, recheck",
    "offset": "where groups are: show, reset, skip, clone",
    "broker": "running brokers: list, status, stats, clean, wipe, allow",
    "cluster": "clusters: list, show; of `up --cluster`: status, kill, stop, start",
    "client": "connected consumers and producers",
    "dlq": "dead letters: list, show, resend, export, import",
    "trace": "the life of a message",
    "config": "settings of brokers and name servers, key-value configuration",
    "doctor": "look for what is wrong and say how to mend it",
}

Run = Callable[["Admin", argparse.Namespace, "Output"], Awaitable[int | None]]


def with_nearest(message: str) -> str:
    """What argparse says, and of a wrong choice the right one that is nearest."""
    wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
    if wrong is None:
        return message
    close = difflib.get_close_matches(wrong[1], re.findall(r"[\w-]+", wrong[2]), n=1)
    return f"{message}; did you mean {close[0]}?" if close else message


class LineParser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(with_nearest(message).split())}\n")

    def nearest(self, word: str) -> str:
        known = [option for action in self._actions for option in action.option_strings]
        close = difflib.get_close_matches(word.partition("=")[0], known, n=1, cutoff=0.5)
        return f"did you mean {close[0]}?" if close else f"see {self.prog} --help"


class UsageError(Exception):
    """Words that are each right and together wrong: one line, and exit code 2."""


class CommandGroup:
    """The verbs of a noun, as its module declares them."""

    def __init__(self, noun: LineParser) -> None:
        self.parsers: dict[str, LineParser] = {}
        self._noun = noun
        self._verbs = noun.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=LineParser)

    def add(self, name: str, run: Run, help_: str, *, destroys: bool = False, example: str = "") -> LineParser:
        parser = self._verbs.add_parser(
            name,
            help=help_,
            description=f"{help_[:1].upper()}{help_[1:]}.",
            epilog=f"example: firearrow {example}" if example else None,
            allow_abbrev=False,
        )
        prepare(parser, run, destroys=destroys)
        self.parsers[name] = parser
        return parser


def prepare(parser: LineParser, run: Run, *, destroys: bool = False) -> None:
    """What every command takes."""
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument(
        "-n",
        "--name-server",
        metavar="ADDR;ADDR",
        default=os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER,
        help=f"name servers (default: $NAMESRV_ADDR, or {DEFAULT_NAME_SERVER})",
    )
    parser.add_argument("-o", "--output", choices=("table", "json", "csv"), default="table", help="default: %(default)s")
    parser.add_argument("--access-key", metavar="KEY", help="for access control; the secret key is in $FIREARROW_SECRET_KEY")
    parser.add_argument("--tls", action="store_true", help="encrypted connections")
    parser.add_argument("--timeout", metavar="S", type=seconds, default=5.0, help="for each question (default: %(default)g)")
    if destroys:
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 2**31 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; expected 1 or more")
    return int(text)


def number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 2**63 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; expected 0 or more")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; expected more than 0")
    return value


def rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate; expected messages a second, more than 0")
    return value


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or "\n" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key.strip(), value


def truth(text: str) -> bool:
    if text.lower() not in ("yes", "no", "true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither; expected yes or no")
    return text.lower() in ("yes", "true")


def permission(text: str) -> int:
    known = {"r": 4, "w": 2, "rw": 6, "none": 0, "4": 4, "2": 2, "6": 6, "0": 0}
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is not a permission; expected r, w, rw or none")
    return known[text]


def moment(text: str) -> datetime:
    """A moment, or how long ago it was."""
    if text[:-1].isascii() and text[:-1].isdigit() and text[-1:] in UNITS:
        return datetime.now().astimezone() - timedelta(seconds=int(text[:-1]) * UNITS[text[-1]])
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; expected one like 2030-01-31T12:00:00 or an age like 30s, 10m, 2h, 1d"
        ) from None


def place(text: str) -> Any:
    """Where a group can go: begin, end, an offset, a moment."""
    if text in ("begin", "end"):
        return text
    if text.isascii() and text.isdigit():
        return number(text)
    try:
        return moment(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no place; expected begin, end, an offset, a time like 2030-01-31T12:00:00 or an age like 10m"
        ) from None


def add_range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from", dest="begin", metavar="TIME", type=moment, help="stored since: 2030-01-31T12:00:00, or 30s, 10m, 2h, 1d"
    )
    parser.add_argument("--until", dest="end", metavar="TIME", type=moment, help="stored before")


def add_filters(parser: argparse.ArgumentParser) -> None:
    add_range(parser)
    parser.add_argument("--tag", help="with this tag")
    parser.add_argument("--key", help="with this key, or message id")
    parser.add_argument("--contains", metavar="TEXT", type=str.encode, help="with this text in the body")

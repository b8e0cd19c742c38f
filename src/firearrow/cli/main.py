"""The command line: what was asked for, checked, and handed to the module that does it.

Ports are to be open within a second, so nothing but the standard library's argparse is loaded to understand the words; what a
command needs is imported when it runs.

Exit codes: 0 after a clean stop, 1 when something could not start or failed, 2 when the words were not understood.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import NoReturn

from firearrow import __version__
from firearrow.cli.arguments import NOUNS, with_nearest
from firearrow.cli.messages.arguments import CLIENT_COMMANDS, add_bench, add_consume, add_send
from firearrow.cli.words import DEFAULT_DATA, FORM_NAMES, unknown_form

MAX_BROKERS = 26  # broker-a to broker-z
COMMANDS = ("up", "namesrv", "broker", *CLIENT_COMMANDS)
OPERATION = frozenset((*NOUNS, "mqadmin", "spark", "completion", "__complete"))


def main(argv: Sequence[str] | None = None) -> NoReturn:
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in OPERATION and not _starts_a_broker(words):
        sys.exit(_operate(words))
    options = _understand(words)
    if options.command in CLIENT_COMMANDS:
        from firearrow.cli.messages import common

        sys.exit(common.run(options))
    from firearrow.cli.servers import run

    sys.exit(run.run(options))


def _starts_a_broker(words: Sequence[str]) -> bool:
    """`firearrow broker` starts one, `firearrow broker list` asks about those that run."""
    return words[0] == "broker" and (len(words) == 1 or words[1].startswith("-"))


def _operate(words: Sequence[str]) -> int:
    if words[0] == "mqadmin":
        from firearrow.cli import mqadmin

        return mqadmin.run(words[1:])
    if words[0] == "spark":
        from firearrow.cli.spark import arguments

        return arguments.run(words[1:])
    if words[0] in ("completion", "__complete"):
        from firearrow.cli import completion

        return completion.run(words)
    from firearrow.cli.operator import run as operate

    return operate.run(words)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"firearrow: {' '.join(with_nearest(message).split())}\n")


def _understand(argv: Sequence[str] | None) -> argparse.Namespace:
    parser, run = _parsers()
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        command = run.choices[options.command]
        command.error(f"unknown argument {unknown[0]}{_nearest(unknown[0], command)}")
    return options


def parser_of_command(name: str) -> argparse.ArgumentParser | None:
    """For completion."""
    return _parsers()[1].choices.get(name)


def _parsers() -> tuple[_Parser, argparse._SubParsersAction[_Parser]]:
    parser = _Parser(
        prog="firearrow", description="A message broker and name server compatible with Apache RocketMQ, and clients for them."
    )
    parser.add_argument("--version", action="version", version=f"firearrow {__version__}")
    run = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    _add_up(run)
    _add_namesrv(run)
    _add_broker(run)
    add_send(run)
    add_consume(run)
    add_bench(run)
    for noun, about in NOUNS.items():  # understood elsewhere; here for the list of commands
        if noun != "broker":
            run.add_parser(noun, help=about)
    run.add_parser("mqadmin", help="Apache's administration tool: its subcommands, flags and format")
    run.add_parser("spark", help="jobs over topics: archive, transfer, replay, dedupe, audit, lag, trace, sql")
    run.add_parser("completion", help="completion for bash, zsh or fish")
    return parser, run


def _add_up(run: argparse._SubParsersAction[_Parser]) -> None:
    up = run.add_parser(
        "up",
        help="start a name server and brokers on this machine",
        description="Starts a name server and a broker in one process, with --brokers N as N broker processes, or with --cluster "
        "FORM as a cluster of processes to try, to break and to mend (firearrow cluster kill|stop|start|status).",
        allow_abbrev=False,
    )
    up.add_argument("--data", metavar="DIR", default=DEFAULT_DATA, help="data directory (default: %(default)s)")
    up.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s; 0.0.0.0: all)")
    up.add_argument("--namesrv-port", metavar="PORT", type=_port, default=9876, help="default: %(default)s; 0: any free one")
    up.add_argument(
        "--broker-port",
        metavar="PORT",
        type=_broker_port,
        default=10911,
        help="default: %(default)s, further brokers 10 apart; 0: any",
    )
    how_many = up.add_mutually_exclusive_group()
    how_many.add_argument("--brokers", metavar="N", type=_broker_count, default=1, help="broker processes (default: %(default)s)")
    how_many.add_argument("--cluster", metavar="FORM", type=_form, help=f"a whole cluster: {', '.join(FORM_NAMES)}")
    _add_common(up)


def _add_namesrv(run: argparse._SubParsersAction[_Parser]) -> None:
    namesrv = run.add_parser("namesrv", help="start a name server", description="Starts a name server.", allow_abbrev=False)
    namesrv.add_argument("-c", dest="config", metavar="FILE", help="property file, as Apache's namesrv.conf")
    namesrv.add_argument("--stop-with-parent", action="store_true", help=argparse.SUPPRESS)
    _add_common(namesrv)


def _add_broker(run: argparse._SubParsersAction[_Parser]) -> None:
    broker = run.add_parser(
        "broker",
        help="start a broker; or, with a verb, ask about running ones: list, status, stats, clean, wipe, allow",
        description="Starts a broker. With a verb (list, status, stats, ...): asks about running ones.",
        allow_abbrev=False,
    )
    broker.add_argument("-c", dest="config", metavar="FILE", help="property file, as Apache's broker.conf")
    broker.add_argument(
        "-n", dest="namesrv", metavar="ADDR;ADDR", help="name servers (default: namesrvAddr in the file, or $NAMESRV_ADDR)"
    )
    broker.add_argument("--stop-with-parent", action="store_true", help=argparse.SUPPRESS)
    _add_common(broker)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", dest="settings", metavar="KEY=VALUE", action="append", type=_pair, default=[], help="a setting, by Apache's key"
    )
    parser.add_argument(
        "--ready-file", metavar="FILE", help="write addresses and pid there as JSON when every port accepts (-: to stdout)"
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; expected 0 to 65535")
    return int(text)


def _broker_port(text: str) -> int:
    port = _port(text)
    if port in (1, 2):
        raise argparse.ArgumentTypeError(f"{port} leaves no room for the fast port, two below it; expected 0, or 3 to 65535")
    return port


def _broker_count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_BROKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of brokers; expected 1 to {MAX_BROKERS}")
    return int(text)


def _form(text: str) -> str:
    if text not in FORM_NAMES:
        raise argparse.ArgumentTypeError(unknown_form(text))
    return text


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    return key.strip(), value


def _nearest(word: str, command: argparse.ArgumentParser) -> str:
    known = [option for action in command._actions for option in action.option_strings if action.help != argparse.SUPPRESS]
    close = difflib.get_close_matches(word.partition("=")[0], known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""

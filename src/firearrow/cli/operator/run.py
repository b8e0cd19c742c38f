"""From `firearrow NOUN VERB ...` to the function that does it.

Exit codes: 0 done; 1 it failed, was not there or was not wanted after all; 2 the words were not understood.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from firearrow.cli.arguments import NOUNS, CommandGroup, LineParser, UsageError


def run(words: Sequence[str]) -> int:
    options = understand(words)
    return carry_out(options)


def parser_of(noun: str) -> tuple[LineParser, dict[str, LineParser]]:
    """The parser of a noun, and those of its verbs; a noun without verbs is its own."""
    parser = LineParser(prog=f"firearrow {noun}", description=f"{NOUNS[noun][:1].upper()}{NOUNS[noun][1:]}.", allow_abbrev=False)
    module = import_module(f"firearrow.cli.operator.{noun}")
    if hasattr(module, "add"):
        verbs = CommandGroup(parser)
        module.add(verbs)
        return parser, verbs.parsers
    module.declare(parser)
    return parser, {}


def understand(words: Sequence[str]) -> argparse.Namespace:
    parser, _ = parser_of(words[0])
    options, unknown = parser.parse_known_args(list(words[1:]))
    if unknown:
        options.parser.error(f"unknown argument {unknown[0]}; {options.parser.nearest(unknown[0])}")
    return options


def carry_out(options: argparse.Namespace) -> int:
    import asyncio
    import logging

    from firearrow.cli.asking import NotConfirmedError
    from firearrow.client.errors import BrokerError, FirearrowError, InvalidMessageError
    from firearrow.net.event_loop import run as run_loop
    from firearrow.wire.codes import ResponseCode

    logging.basicConfig(format="firearrow: %(message)s", level=logging.ERROR, stream=sys.stderr)
    try:
        return run_loop(_with_admin(options))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
        return 0
    except NotConfirmedError as error:
        print(f"{options.parser.prog}: {error}", file=sys.stderr)
        return 2 if error.wrong_words else 1
    except UsageError as error:
        print(f"{options.parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except (FirearrowError, OSError, ValueError) as error:
        print(f"{options.parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
        if isinstance(error, BrokerError):
            return 2 if error.code == ResponseCode.INVALID_PARAMETER else 1
        return 2 if type(error) in (ValueError, InvalidMessageError) else 1  # ValueErrors with a name of their own are failures
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 1


async def _with_admin(options: argparse.Namespace) -> int:
    from firearrow.admin.aio import Admin
    from firearrow.cli.messages.common import credentials
    from firearrow.cli.terminal import Output

    try:
        admin = Admin(
            options.name_server,
            credentials=credentials(options.access_key),
            tls=options.tls,
            request_timeout=options.timeout,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    out = Output(options.output)
    async with admin:
        code = await options.run(admin, options, out)
    out.flush()
    return code or 0

"""Shell completion: `firearrow completion bash|zsh|fish` prints what the shell is to run; the shell then asks us at each Tab.

    eval "$(firearrow completion bash)"

Commands, verbs and options come from the parsers. Names of topics, groups and brokers come from the name server, if it answers at
once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from firearrow.cli.arguments import NOUNS, LineParser
from firearrow.cli.mqadmin import SUBCOMMANDS

HIDDEN: Final = "__complete"
_PATIENCE_S: Final = 0.5

_BASH: Final = """_firearrow() {
    local IFS=$'\\n'
    COMPREPLY=($(firearrow __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _firearrow firearrow
"""

SCRIPTS: Final = {
    "bash": _BASH,
    "zsh": "autoload -U +X bashcompinit && bashcompinit\n" + _BASH,
    "fish": "complete -c firearrow -a '(firearrow __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'\n",
}


def run(words: Sequence[str]) -> int:
    if words[:1] == [HIDDEN]:
        print("\n".join(candidates(list(words[1:]))))
        return 0
    parser = LineParser(
        prog="firearrow completion", description="Prints a script for a shell: eval it, or put it into its start file."
    )
    parser.add_argument("shell", choices=sorted(SCRIPTS))
    sys.stdout.write(SCRIPTS[parser.parse_args(list(words[1:])).shell])
    return 0


def candidates(words: list[str]) -> list[str]:
    """What the last of the words can become."""
    *before, last = words or [""]
    if not before:
        return _beginning(_commands(), last)
    parser = _parser(before, last)
    if parser is None:
        return []
    if isinstance(parser, list):
        return _beginning(parser, last)
    return _of_parser(parser, before, last)


def _commands() -> list[str]:
    from firearrow.cli.main import COMMANDS

    return sorted({*COMMANDS, *NOUNS, "mqadmin", "spark", "completion"})


def _parser(before: list[str], last: str) -> LineParser | argparse.ArgumentParser | list[str] | None:
    """Who understands the next word: a parser, or one of these words."""
    first = before[0]
    if first == "completion":
        return sorted(SCRIPTS)
    if first == "mqadmin":
        return list(SUBCOMMANDS) if len(before) == 1 else None
    if first == "spark":
        from firearrow.cli.spark.arguments import parsers

        jobs = parsers()[1]
        return sorted(jobs) if len(before) == 1 else jobs.get(before[1])
    if first in NOUNS and not (first == "broker" and [*before, last][1].startswith("-")):
        from firearrow.cli.operator.run import parser_of

        noun, verbs = parser_of(first)
        if not verbs:
            return noun
        if len(before) == 1:
            return sorted(verbs)
        return verbs.get(before[1])
    from firearrow.cli.main import parser_of_command

    return parser_of_command(first)


def _of_parser(parser: argparse.ArgumentParser, before: list[str], last: str) -> list[str]:
    options = {
        option: action for action in parser._actions for option in action.option_strings if action.help != argparse.SUPPRESS
    }
    action = options.get(before[-1])
    if action is not None and action.nargs != 0:
        return _values(action, before, last)
    if last.startswith("-"):
        return _beginning([option for option in options if option.startswith("--")], last)
    places = [action for action in parser._actions if not action.option_strings]
    given = sum(not word.startswith("-") and options.get(previous) is None for previous, word in pairwise(before[1:]))
    if not places:
        return []
    return _values(places[min(given, len(places) - 1)], before, last)


def _values(action: argparse.Action, before: list[str], last: str) -> list[str]:
    if action.choices is not None:
        return _beginning([str(choice) for choice in action.choices], last)
    kind = str(action.metavar or action.dest).lower()
    return _beginning(_names(kind, before), last) if kind in ("topic", "group", "broker", "cluster") else []


def _names(kind: str, before: list[str]) -> list[str]:
    """What there is of a kind; nothing if nobody can say at once."""
    import asyncio
    import os

    from firearrow.admin.aio import Admin
    from firearrow.cli.messages.arguments import DEFAULT_NAME_SERVER
    from firearrow.client.errors import FirearrowError

    given = next((word for flag, word in pairwise(before) if flag in ("-n", "--name-server")), None)
    address = given or os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER

    async def ask() -> list[str]:
        async with asyncio.timeout(_PATIENCE_S), Admin(address) as admin:
            if kind == "topic":
                return [name for name in await admin.topic_names() if not name.startswith("%")]
            if kind == "group":
                return await admin.group_names()
            return sorted({one.name if kind == "broker" else one.cluster for one in await admin.list_brokers()})

    try:
        return asyncio.run(ask())
    except (FirearrowError, OSError, ValueError, TimeoutError):
        return []


def _beginning(words: list[str], last: str) -> list[str]:
    return [word for word in words if word.startswith(last)]

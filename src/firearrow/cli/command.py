"""The click classes and decorators that every command is built from, and the handling of errors and exit codes.

Exit codes: 0 success, 1 failure (also an object that does not exist and a question answered with no), 2 invalid usage. Every
error is one line on standard error that begins with the command's name.

Only click and the standard library are imported here. What a command needs is imported when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from firearrow.cli.arguments import DURATION, NAMESRV_ADDR, did_you_mean
from firearrow.cli.security import SECURITY_OPTIONS, SecurityArguments
from firearrow.escaping import escape_controls, log_to_stderr

if TYPE_CHECKING:
    from datetime import timedelta

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
SUCCESS, FAILURE, USAGE = 0, 1, 2
_UNSIGNED: Final = "username cannot be null."  # remark of a server with access control about a request without credentials

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


# ---- groups


class LazyCommand(NamedTuple):
    """A command that is imported when it is chosen. `target` is `module:attribute` below `firearrow.cli`."""

    target: str
    help: str
    section: str = "Commands"


class Group(click.Group):
    """A group of commands, some of which are imported when they are chosen. Its help lists them by section."""

    command_class = click.Command

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand] | None = None, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._lazy = dict(lazy or {})

    def admin_command(self, name: str, **attributes: Any) -> Callable[[Function], click.Command]:
        """Add a command made by the function `admin_command`."""

        def decorate(function: Function) -> click.Command:
            command = admin_command(name, **attributes)(function)
            self.add_command(command)
            return command

        return decorate

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *(name for name in self.commands if name not in self._lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self._lazy.get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = lazy.target.partition(":")
        command = getattr(import_module(f"firearrow.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        command.help = command.help or lazy.help
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.list_commands(ctx) and not args[0].startswith("-"):
            if ctx.resilient_parsing:
                return None, None, args[1:]
            close = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(f"no such command {args[0]!r}; {close or f'see {ctx.command_path} --help'}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            section, text = self._described(ctx, name)
            sections.setdefault(section, []).append((name, text))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        """Complete command names without importing the commands."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [CompletionItem(name, help=self._described(ctx, name)[1]) for name in names] + click.Command.shell_complete(
            self, ctx, incomplete
        )

    def _described(self, ctx: click.Context, name: str) -> tuple[str, str]:
        lazy = self._lazy.get(name)
        if lazy is not None:
            return lazy.section, lazy.help
        command = self.commands[name]
        return "Commands", command.get_short_help_str(100)


# ---- options that many commands have


def options(*decorators: Decorator) -> Decorator:
    """Combine option decorators into one that keeps their order in the help."""

    def decorate(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def log_level_option(default: str) -> Decorator:
    return click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        default=default,
        show_default=True,
        help="Least severe level that is logged.",
    )


namesrv_option: Decorator = click.option(
    "-n",
    "--namesrv",
    metavar="ADDR;ADDR",
    envvar="NAMESRV_ADDR",
    default=NAMESRV_ADDR,
    help=f"Name servers. Default: $NAMESRV_ADDR, or {NAMESRV_ADDR}.",
)
output_option: Decorator = click.option(
    "-o", "--output", type=click.Choice(("table", "json", "csv")), default="table", show_default=True, help="Output format."
)
DESTRUCTIVE_OPTIONS: Final[tuple[Decorator, ...]] = (
    click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
    click.option("--dry-run", is_flag=True, help="Only print what would be done."),
)
ADMIN_OPTIONS: Final[tuple[Decorator, ...]] = (
    *SECURITY_OPTIONS,
    click.option("--timeout", type=DURATION, default="5s", show_default=True, help="Time limit of each request."),
    log_level_option("error"),
)


def at_most_one(**given: object) -> None:
    """Reject the combination of options that exclude each other. Keywords are option names, values None or False if absent."""
    present = [_option(name) for name, value in given.items() if value is not None and value is not False and value != ()]
    if len(present) > 1:
        raise click.UsageError(f"{present[0]} and {present[1]} exclude each other")


def exactly_one(**given: object) -> None:
    at_most_one(**given)
    if all(value is None or value is False or value == () for value in given.values()):
        raise click.UsageError(f"one of {', '.join(_option(name) for name in given)} is required")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# ---- commands that ask a cluster


def admin_command(name: str, *, destructive: bool = False, **attributes: Any) -> Callable[[Function], click.Command]:
    """Turn `async def f(admin, out, **parameters)` into a command with the options of every admin command."""

    def decorate(function: Function) -> click.Command:
        command = click.command(name, click.Command, **attributes)(function)
        command.callback = partial(run_admin, function)
        for option in (namesrv_option, output_option, *(DESTRUCTIVE_OPTIONS if destructive else ()), *ADMIN_OPTIONS):
            option(command)
        return command

    return decorate


def run_admin(
    function: Function,
    *,
    namesrv: str,
    output: str = "table",
    timeout: timedelta | float = 5.0,
    log_level: str = "error",
    yes: bool = False,
    dry_run: bool = False,
    default_credentials_file: str | None = None,
    **parameters: Any,
) -> int:
    """Call `function(admin, out, **parameters)` with a connected client and return the exit code."""
    from firearrow.admin.aio import Admin
    from firearrow.cli.terminal import Output
    from firearrow.client.options import ClientKeywords

    out = Output(output, yes=yes, dry_run=dry_run)
    security = SecurityArguments.take(parameters, default_credentials_file)

    async def work() -> int:
        try:
            admin = Admin(namesrv, **(security.keywords() | ClientKeywords(request_timeout=timeout)))
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        async with admin:
            code = await function(admin, out, **parameters)
        out.flush()
        return code or SUCCESS

    return run_async(out.with_activity(work(), f"waiting for {namesrv}"), log_level=log_level, namesrv=namesrv)


def run_async(work: Coroutine[Any, Any, int], *, log_level: str, namesrv: str = "") -> int:
    """Run a command's coroutine and return its exit code; print its failure as one line."""
    import asyncio

    from firearrow.cli.terminal import NotConfirmedError
    from firearrow.client.errors import BrokerError, FirearrowError, InvalidMessageError
    from firearrow.net.event_loop import run as run_loop
    from firearrow.wire.codes import ResponseCode

    log_to_stderr("firearrow: %(message)s", log_level)
    try:
        return run_loop(work)
    except BrokenPipeError:
        discard_output()
        return SUCCESS
    except NotConfirmedError as error:
        fail(str(error))
        return FAILURE
    except (FirearrowError, OSError, ValueError) as error:
        fail(explain(error, namesrv))
        if isinstance(error, BrokerError):
            return USAGE if error.code == ResponseCode.INVALID_PARAMETER else FAILURE
        return USAGE if type(error) in (ValueError, InvalidMessageError) else FAILURE
    except (KeyboardInterrupt, asyncio.CancelledError):
        return FAILURE


def explain(error: Exception, namesrv: str) -> str:
    """Return the text of an error, with advice on wrong addresses and missing credentials."""
    from firearrow.client.errors import BrokerError
    from firearrow.wire.codes import ResponseCode

    if isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and error.address in namesrv:
        return (
            f"{error.address} is a broker, not a name server; give the name server's address with -n or NAMESRV_ADDR "
            f"(default {NAMESRV_ADDR})"
        )
    if isinstance(error, BrokerError) and error.code == ResponseCode.NO_PERMISSION and error.remark == _UNSIGNED:
        return f"{error}; give credentials with --credentials-file, or $FIREARROW_ACCESS_KEY and $FIREARROW_SECRET_KEY"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def fail(text: str) -> None:
    """Print an error as one line that begins with the command's name."""
    context = click.get_current_context(silent=True)
    name = context.command_path if context is not None else "firearrow"
    print(f"{name}: {escape_controls(' '.join(text.split()))}", file=sys.stderr)


def discard_output() -> None:
    """Point standard output at nothing after a closed pipe: the interpreter flushes it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def milliseconds(duration: timedelta) -> int:
    return max(1, round(duration.total_seconds() * 1000))

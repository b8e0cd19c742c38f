"""Options and execution that `send`, `consume` and `bench` share.

The exit code is 0 also when Ctrl-C or a closed pipe ends a command that has no other end.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import click

from firearrow.cli.arguments import did_you_mean
from firearrow.cli.command import (
    log_level_option,
    namesrv_option,
    options,
    output_option,
    run_async,
)
from firearrow.cli.security import SECURITY_OPTIONS, SecurityArguments
from firearrow.client.errors import ClientError, FirearrowError, NoRouteError
from firearrow.client.options import ClientKeywords


class ClientArguments(NamedTuple):
    """The values of the options that every client command has."""

    namesrv: str
    output: str
    namespace: str
    trace: bool
    log_level: str
    security: SecurityArguments

    @classmethod
    def take(cls, parameters: dict[str, Any]) -> ClientArguments:
        """Remove the shared options from the parameters of a command."""
        security = SecurityArguments.take(parameters)
        return cls(**{name: parameters.pop(name) for name in cls._fields[:-1]}, security=security)

    def keywords(self) -> ClientKeywords:
        """Return the keywords of a client."""
        return self.security.keywords() | ClientKeywords(namespace=self.namespace, trace=self.trace)


client_options = options(
    namesrv_option,
    output_option,
    click.option("--namespace", default="", help="Namespace of topics and groups."),
    *SECURITY_OPTIONS,
    click.option("--trace", is_flag=True, help="Send a trace of every message to the trace topic."),
    log_level_option("warning"),
)


def run_client(work: Callable[[], Coroutine[Any, Any, int]], shared: ClientArguments) -> int:
    """Run a client command until it ends, or SIGINT or SIGTERM cancels it."""
    return run_async(_until_interrupted(work, shared), log_level=shared.log_level, namesrv=shared.namesrv)


async def _until_interrupted(work: Callable[[], Coroutine[Any, Any, int]], shared: ClientArguments) -> int:
    task = asyncio.ensure_future(work())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return 0
    except NoRouteError as error:
        raise await _with_suggestion(error, shared) from None


async def _with_suggestion(error: NoRouteError, shared: ClientArguments) -> ClientError:
    """Return the error of an unknown topic with the name of a similar one."""
    if not error.asked:
        return error
    from firearrow.admin.aio import Admin

    try:
        async with Admin(shared.namesrv, **shared.keywords()) as admin:
            close = did_you_mean(error.topic, await admin.topic_names())
    except FirearrowError:
        return error
    return ClientError(f"topic {error.topic!r} does not exist; {close}") if close else error

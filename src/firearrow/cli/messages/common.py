"""What the commands that are clients have in common: options to keywords, logging, errors, the end by Ctrl-C.

Exit codes: 0 when all was done, also when Ctrl-C or a closed pipe ended what had no other end; 1 when something failed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from importlib import import_module
from typing import Any

from firearrow.client.errors import FirearrowError
from firearrow.client.options import ClientKeywords, Credentials
from firearrow.net.event_loop import run as run_loop

SECRET_KEY_VARIABLE = "FIREARROW_SECRET_KEY"


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(format="firearrow: %(message)s", level=logging.WARNING, stream=sys.stderr)
    command = import_module(f"firearrow.cli.messages.{options.command}")
    try:
        return run_loop(_until_interrupted(command.run(options)))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
        return 0
    except (FirearrowError, OSError, ValueError) as error:
        print(f"firearrow: {' '.join(str(error).split())}", file=sys.stderr)
        return 1


def client_keywords(options: argparse.Namespace) -> ClientKeywords:
    """What every client takes, from the options that every command has."""
    return ClientKeywords(
        namespace=options.namespace, credentials=credentials(options.access_key), tls=options.tls, trace=options.trace
    )


def credentials(access_key: str | None) -> Credentials | None:
    if access_key is None:
        return None
    secret_key = os.environ.get(SECRET_KEY_VARIABLE, "")
    if not secret_key:
        raise ValueError(f"--access-key was given, but the environment variable {SECRET_KEY_VARIABLE} is not set")
    return Credentials(access_key, secret_key)


async def _until_interrupted(work: Coroutine[Any, Any, int]) -> int:
    """SIGINT and SIGTERM cancel the work, which then leaves its clients in order."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return 0

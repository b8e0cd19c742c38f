"""SIGTERM for blocking workers.

By default SIGTERM ends a Python process at once: offsets are not committed, and messages in progress are delivered again.
`return_on_sigterm` turns the signal into the end of a blocking call, so that the `with` statement around it can close the client.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("firearrow.client")


class _Terminated(BaseException):
    """Raised in the main thread by the signal handler."""


@contextmanager
def return_on_sigterm() -> Iterator[None]:
    """Leave the body normally when SIGTERM arrives.

    Only in the main thread, where Python runs signal handlers, and only if the program has not installed a handler of its own.
    Outside the body SIGTERM has its default effect, so a second signal ends a process that is slow to shut down.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminate(number: int, frame: object) -> None:
        raise _Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except _Terminated:
        log.info("SIGTERM received: shutting down")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

"""Before something is destroyed: a dry run, a question, or `--yes`. And how far long work is."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final, TextIO

_REDRAW_S: Final = 0.1
_BAR: Final = 30


class NotConfirmedError(Exception):
    """The question was not answered with yes. `wrong_words` if it could not even be asked."""

    def __init__(self, text: str, *, wrong_words: bool = False) -> None:
        super().__init__(text)
        self.wrong_words = wrong_words


def confirmed(options: argparse.Namespace, what: str) -> bool:
    """True: go on. False: it was a dry run, and what would be done has been said. NotConfirmedError: do not."""
    if options.dry_run:
        print(f"dry run: would {what}", file=sys.stderr)
        return False
    if options.yes:
        return True
    if not sys.stdin.isatty():
        raise NotConfirmedError(f"this would {what}; expected --yes, or --dry-run, where nobody can be asked", wrong_words=True)
    print(f"This will {what}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotConfirmedError("nothing was done")
    return True


class ProgressBar:
    """A line on a terminal's standard error that is written over; nothing elsewhere. Call it with (done, total)."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._stream = stream if stream is not None else sys.stderr
        self._on = self._stream.isatty()
        self._drawn = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._on or (done < total and now - self._drawn < _REDRAW_S):
            return
        self._drawn = now
        full = _BAR * done // total if total else _BAR
        percent = 100 * done // total if total else 100
        bar = "#" * full + "." * (_BAR - full)
        self._stream.write(f"\r{self._what} [{bar}] {percent:>3} % {done:,} of {total:,}\x1b[K")
        self._stream.flush()

    def clear(self) -> None:
        if self._on and self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

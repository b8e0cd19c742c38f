r"""Escaping of control characters in text from peers, before it reaches a terminal or a log file.

Message bodies, keys, tags, names and remarks may contain terminal escape sequences, line breaks that forge lines, and characters
that reverse the direction of the text. They are shown as escapes: `\x1b`, `\n`, `\u202e`. Other text is unchanged.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Any, Final

# C0, DEL and C1 controls; directional marks, overrides and isolates; line and paragraph separators; lone surrogates; tags.
_UNSAFE: Final = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f"
_CONTROLS: Final = re.compile(f"[{_UNSAFE}]")
_CONTROLS_IN_LINES: Final = re.compile(f"(?![\n\t])[{_UNSAFE}]")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def escape_controls(text: str) -> str:
    """Return the text in one line without control characters."""
    return text if text.isprintable() else _CONTROLS.sub(_escape, text)


def escape_lines(text: str) -> str:
    """Return the text without control characters other than line feeds and tabs."""
    return text if text.isprintable() else _CONTROLS_IN_LINES.sub(_escape, text)


def escape_json(text: str) -> str:
    """Return serialized JSON without the control characters that `json.dumps` leaves in strings. The value stays the same."""
    return text if text.isprintable() else _CONTROLS_IN_LINES.sub(_escape_utf16, text)


def _escape(found: re.Match[str]) -> str:
    letter = found[0]
    return _SHORT.get(letter) or letter.encode("unicode_escape", "backslashreplace").decode()


def _escape_utf16(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class EscapingFormatter(logging.Formatter):
    """Formatter whose records occupy one line each, except for tracebacks, whose lines are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name in logging)
        record.message = escape_controls(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 (the name in logging)
        text = super().formatException(ei)
        return "\n".join(f"  {escape_controls(line)}" for line in text.splitlines())


def log_to_stderr(template: str, level: str) -> None:
    """Write the log records of this process to standard error, unless logging is already configured."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EscapingFormatter(template))
    logging.basicConfig(level=level.upper(), handlers=[handler])

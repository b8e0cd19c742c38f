"""The examples in docs/client, and ours in docs/start.md, run as they stand and print what the pages say.

Those of a page run one after the other, in one namespace and against one cluster, which is at the address that the pages name.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.testing import Cluster

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "start.md", *sorted((DOCS / "client").glob("*.md"))]
ADDRESS = "127.0.0.1:9876"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def examples(page: Path) -> list[tuple[int, str, str | None]]:
    """(line, code, what it prints) of each; None where the page does not say."""
    text = page.read_text(encoding="utf-8")
    found: list[tuple[int, str, str | None]] = []
    for match in BLOCK.finditer(text):
        if match[1] == "python" and "from rocketmq" not in match[2]:  # that is another client
            found.append((text.count("\n", 0, match.start()) + 2, match[2], None))
        elif match[1] == "text":
            line, code, printed = found.pop()
            assert printed is None, f"{page}: two outputs of one example"
            found.append((line, code, match[2]))
    return found


WITH_EXAMPLES = [page for page in PAGES if examples(page)]


def test_the_guide_has_examples() -> None:
    assert {
        "start.md",
        "README.md",
        "sending.md",
        "transactions.md",
        "push-consumer.md",
        "pull-consumer.md",
        "connections.md",
    } == {page.name for page in WITH_EXAMPLES}


@pytest.fixture
def client_log() -> Iterator[None]:
    """An example sets the level of the client's logger; other tests want it as it was."""
    logger = logging.getLogger("firearrow.client")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.usefixtures("client_log")
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.name)
def test_the_examples_of_a_page(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": "example"}
    with Cluster(clock=None) as cluster:
        for line, code, printed in examples(page):
            # Empty lines, so that a traceback names the line of the page.
            source = "\n" * (line - 1) + code.replace(ADDRESS, cluster.name_server)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(source, str(page), "exec"), namespace)
            assert printed is None or out.getvalue() == printed, f"{page.name}, line {line}"
            print(out.getvalue(), file=sys.stderr)

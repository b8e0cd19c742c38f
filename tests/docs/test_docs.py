"""The documentation says what is so: generated pages are up to date, links lead somewhere, names of settings exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from itertools import takewhile
from pathlib import Path

import click
import pytest

from docs import generate
from firearrow.broker.settings import BrokerSettings
from firearrow.cli.main import COMMANDS, firearrow
from firearrow.config.fields import declared
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.spark.decode.schema import TYPES
from firearrow.spark.options import OPTIONS
from firearrow.spark.write.input_columns import INPUT_COLUMNS
from firearrow.store.settings import StoreSettings
from firearrow.wire.bodies.topic import SubscriptionGroupConfig, TopicConfig

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
LINKED_PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *PAGES]

SETTINGS = {key for cls in (NamesrvSettings, BrokerSettings, StoreSettings) for key in declared(cls)}

# Names in camel case that are no settings: commands of Apache's tools, fields of requests, files.
OTHER_NAMES = {
    "brokerConsumeStats", "brokerStatus", "consumerProgress", "queryMsgByUniqueKey", "statsAll", "topicStatus",
    "maxReconsumeTimes", "msgId", "offsetMsgId", "recallHandle",
    "queueTable",
    "accessKey", "secretKey",
}  # fmt: skip


def prose(path: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def names_in_backticks(path: Path) -> Iterator[str]:
    """Words in camel case, alone or before `=`."""
    for quoted in re.findall(r"`([^`\n]+)`", prose(path)):
        match = re.fullmatch(r"(?:--set )?([a-z]+[a-z0-9]*[A-Z][A-Za-z0-9]*)(?:=.*)?", quoted)
        if match is not None:
            yield match[1]


def test_generated_pages_say_what_the_code_says() -> None:
    for path, text in generate.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"docs/{path.name} is out of date: run scripts/docs"


def test_generated_pages_do_not_depend_on_the_machine() -> None:
    page = generate.settings_page()

    assert str(Path.home() / "store") not in page
    assert f"`{BrokerSettings().broker_name}`" not in page


@pytest.mark.parametrize("page", LINKED_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.relative_to(ROOT)}: {target} does not exist"
        if anchor:
            assert anchor in anchors(linked), f"{page.relative_to(ROOT)}: {name or page.name} has no heading #{anchor}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index() -> None:
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    names = [page.relative_to(docs).as_posix() for page in PAGES]

    assert [name for name in names if name != "README.md" and f"({name})" not in index] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_settings_exist(page: Path) -> None:
    if page.name in ("settings.md", "coming-from.md", "mqadmin.md"):  # the latter two name what is called otherwise elsewhere
        return
    of_tables = {camel_case(one.name) for cls in (TopicConfig, SubscriptionGroupConfig) for one in fields(cls)}
    known = SETTINGS | of_tables | OTHER_NAMES
    if page.parent.name == "spark" or page.name == "security.md":
        known |= {*OPTIONS, *TYPES, *INPUT_COLUMNS}

    assert sorted(set(names_in_backticks(page)) - known) == []


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_given_on_a_command_line_exist(page: Path) -> None:
    given = re.findall(r"--set ([a-z][A-Za-z0-9]*)=", page.read_text(encoding="utf-8"))

    assert set(given) <= SETTINGS


def shown_commands() -> list[list[str]]:
    """The words of the command lines in the code blocks of the pages, up to a redirection."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", "\n".join(page.read_text("utf-8") for page in LINKED_PAGES), re.M | re.S)
    lines = re.findall(rf"^firearrow ((?:{'|'.join(COMMANDS)})\b.*)$", "\n".join(blocks), re.M)
    return [list(takewhile(lambda word: word not in ("<", ">", "|", "&"), shlex.split(line, comments=True))) for line in lines]


@pytest.mark.parametrize("words", [pytest.param(words, id=" ".join(words)) for words in shown_commands()])
def test_commands_in_the_pages_are_valid(words: list[str]) -> None:
    command: click.Command = firearrow
    context = firearrow.make_context("firearrow", [])
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"{context.command_path} has no command {words[0]}"
        command, words = found, words[1:]
    command.make_context(command.name, list(words), parent=context)


def test_pages_show_every_command() -> None:
    assert {words[0] for words in shown_commands()} == set(COMMANDS) - {"completion"}

"""Generator of the reference parts of the documentation: settings, request codes, the client and the Spark data source.

    settings.md           the whole page: every declared setting, and Apache's keys that mean nothing here
    compatibility.md      the part between the two marks: the codes that a running broker and name server serve
    client/reference.md   the whole page: signatures and docstrings of the client (reference.py)
    spark/README.md       the part between the two marks: columns and options of the data source

Run `scripts/docs --generate` after changing a setting or a handler. With `--check` nothing is written, and the exit status is 1
if a page is out of date.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

import firearrow
from docs import reference
from firearrow.broker.server import Broker
from firearrow.broker.settings import BrokerSettings
from firearrow.config.apache_keys import APACHE_KEYS
from firearrow.config.fields import Setting, declared
from firearrow.namesrv.server import NameServer
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.channel import Channel
from firearrow.spark.decode.schema import MEANING, TYPES
from firearrow.spark.options import OPTIONS
from firearrow.spark.write.input_columns import INPUT_COLUMNS
from firearrow.store.settings import StoreSettings
from firearrow.wire.codes import RequestCode, ResponseCode

DOCS = Path(__file__).parent
MARKS = ("<!-- request codes, written by scripts/docs -->", "<!-- end of request codes -->")
SPARK_MARKS = ("<!-- columns and options, written by scripts/docs -->", "<!-- end of columns and options -->")

# Defaults derived from the machine that runs the broker.
MACHINE_DEFAULTS = {"brokerName": "the machine's name", "storePathRootDir": "`store` in the home directory"}

# Requests that brokers and name servers send but do not serve. (A broker also forwards 307 and 309.)
ASKED_OF_OTHERS = {
    RequestCode.CHECK_TRANSACTION_STATE: "a broker asks a producer for the state of a transaction",
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: "a broker notifies consumers of a change in their group",
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: "a broker resets the offsets of consumers",
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: "a broker asks a consumer for its offsets",
    RequestCode.GET_CONSUMER_RUNNING_INFO: "a broker forwards an operator's request to a consumer",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: "a broker makes a consumer process one message",
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: "a broker forwards a reply to the requesting client",
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: "a name server notifies brokers that the lowest id of their group has changed",
}


def main(words: list[str]) -> int:
    changed = {path: text for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    if words == ["--check"]:
        for path in changed:
            print(f"docs/{path.relative_to(DOCS)} is out of date; run scripts/docs --generate", file=sys.stderr)
        return 1 if changed else 0
    if words:
        print("usage: python -m docs.generate [--check]", file=sys.stderr)
        return 2
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote docs/{path.relative_to(DOCS)}")
    return 0


def pages() -> dict[Path, str]:
    """Return the expected text of every page."""
    compatibility, spark = DOCS / "compatibility.md", DOCS / "spark" / "README.md"
    return {
        DOCS / "settings.md": settings_page(),
        DOCS / "client" / "reference.md": reference.page(),
        compatibility: _between(compatibility, MARKS, request_codes(*asyncio.run(served_codes()))),
        spark: _between(spark, SPARK_MARKS, spark_tables()),
    }


def _between(path: Path, marks: tuple[str, str], text: str) -> str:
    """Return the page with the text between its marks replaced."""
    before, _, rest = path.read_text(encoding="utf-8").partition(marks[0])
    _, end, after = rest.partition(marks[1])
    assert end, f"{path} lacks the marks {marks}"
    return f"{before}{marks[0]}\n\n{text}\n{marks[1]}{after}"


def spark_tables() -> str:
    columns = [f"| `{name}` | {kind} | {MEANING[name]} |" for name, kind in TYPES.items()]
    taken = [f"| `{name}` | {' or '.join(kinds)} |" for name, kinds in INPUT_COLUMNS.items()]
    options = []
    for name, one in OPTIONS.items():
        default = str(one.default).lower() if isinstance(one.default, bool) else one.default
        shown = one.shown or ("none" if default is None else f"`{default}`")
        options.append(f"| `{name}` | {shown} | {one.help.replace('|', chr(92) + '|')} |")
    return "\n".join([
        "### Read columns", "", "| column | type | |", "|---|---|---|", *columns, "",
        "### Written columns", "", "| column | type |", "|---|---|", *taken, "",
        "### Options", "", "| option | default | |", "|---|---|---|", *options, "",
    ])  # fmt: skip


# Settings.


def settings_page() -> str:
    known = set().union(*(declared(cls) for cls in (NamesrvSettings, BrokerSettings, StoreSettings)))
    return f"""<!-- Written by scripts/docs from the declarations in src/firearrow/*/settings.py: change those, not this page. -->
# Settings

Settings have Apache RocketMQ's names. Their sources, in increasing priority:

1. the environment variable `NAMESRV_ADDR`, for `namesrvAddr` only;
2. a property file: `firearrow broker -c broker.conf`, `firearrow namesrv -c namesrv.conf`;
3. `--set KEY=VALUE` of every command, which may be repeated;
4. `-n`, for `namesrvAddr` only.

`firearrow up` passes `--set` to the name server and to every broker; each uses the keys that it knows. Ports, paths and names are
options of `up` and cannot be set with `--set`.

An invalid or out-of-range value is an error, and nothing starts. An unknown key produces a warning with the nearest known name.
Settings marked "yes" under "run time" can be changed while the process runs (`mqadmin updateBrokerConfig`,
`mqadmin updateNamesrvConfig`). A request is applied completely or not at all, and lasts until the next start; the file is not
rewritten.

## Broker

{_table(BrokerSettings, without=())}
## Broker store

{_table(StoreSettings, without=declared(BrokerSettings))}
## Name server

{_table(NamesrvSettings, without=())}
## Ignored keys of Apache RocketMQ

These keys are accepted so that a property file written for Apache's broker or name server can be used unchanged. They have no
effect: most size thread pools or tune memory maps, which do not exist here, and some belong to unsupported features (see
[compatibility](compatibility.md)).

{_words(sorted(APACHE_KEYS - known, key=str.lower))}
"""


def _table(cls: type, *, without: Collection[str]) -> str:
    rows = [_row(one) for one in declared(cls).values() if one.key not in without]
    return "\n".join(["| setting | type | default | allowed | run time | |", "|---|---|---|---|---|---|", *rows, ""])


def _row(one: Setting) -> str:
    kind = {int: "number", float: "number", bool: "true or false"}.get(one.kind, "text")
    what = one.help if is_read(one) else f"{one.help} (no effect yet)"
    cells = [f"`{one.key}`", kind, _default(one), _allowed(one), "yes" if one.runtime else "", what]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def is_read(one: Setting) -> bool:
    """Return whether any code uses the setting other than to display it. A setting with a single allowed value needs no use."""
    if one.choices is not None and len(one.choices) == 1:
        return True
    return any(re.search(rf"\b{one.attribute}\b(?!: )", text) for text in _sources())


@lru_cache(maxsize=1)
def _sources() -> list[str]:
    root = Path(firearrow.__file__).parent
    displays_all = root / "broker" / "admin" / "broker.py"
    return [path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py")) if path != displays_all]


def _default(one: Setting) -> str:
    if one.key in MACHINE_DEFAULTS:
        return MACHINE_DEFAULTS[one.key]
    text = one.format(one.default)
    return f"`{text}`" if text else "none"


def _allowed(one: Setting) -> str:
    if one.choices is not None:
        return ", ".join(f"`{choice}`" for choice in one.choices)
    if one.low is not None and one.high is not None:
        return f"{one.low} to {one.high}" if one.low < one.high else f"{one.low}"
    if one.low is not None:
        return f"{one.low} or more"
    return f"{one.high} or less" if one.high is not None else ""


# Request codes.


async def served_codes() -> tuple[set[RequestCode], set[RequestCode]]:
    """Return the codes that a running broker and a running name server do not answer with "not supported"."""
    namesrv = NameServer(NamesrvSettings(bind_address="127.0.0.1", listen_port=0))
    await namesrv.start()
    try:
        at_namesrv = await _not_refused(namesrv.address)
    finally:
        await namesrv.stop()
    with tempfile.TemporaryDirectory() as directory:
        store = StoreSettings(store_path_root_dir=directory, mapped_file_size_commit_log=1024 * 1024)
        broker = Broker(BrokerSettings(bind_address="127.0.0.1", listen_port=0), store, namesrv_addrs=[])
        await broker.start()
        try:
            at_broker = await _not_refused(broker.advertised)
        finally:
            await broker.stop()
    return at_broker, at_namesrv


async def _not_refused(address: str) -> set[RequestCode]:
    """Send every request without fields and body. Most responses name a missing field, which shows that the code is served."""
    channel = await Channel.connect(address)
    try:
        answers = {code: await channel.call(code, timeout_ms=5_000) for code in RequestCode}
    finally:
        await channel.close()
    return {code for code, answer in answers.items() if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED}


def request_codes(at_broker: set[RequestCode], at_namesrv: set[RequestCode]) -> str:
    served = sorted(at_broker | at_namesrv)
    rows = [
        f"| {code} | {code.name} | {'yes' if code in at_broker else ''} | {'yes' if code in at_namesrv else ''} |"
        for code in served
    ]
    asked = [f"| {code} | {code.name} | {what} |" for code, what in sorted(ASKED_OF_OTHERS.items())]
    left = [f"{code} {code.name}" for code in RequestCode if code not in served and code not in ASKED_OF_OTHERS]
    return f"""| code | name | broker | name server |
|---|---|---|---|
{chr(10).join(rows)}

Sent to clients and brokers:

| code | name | |
|---|---|---|
{chr(10).join(asked)}

Known but unsupported. These codes, and all codes in neither table, are answered with 3:

{_words(left)}
"""


def _words(words: list[str]) -> str:
    """Return the words as a wrapped paragraph."""
    lines = [""]
    for word in words:
        piece = f"`{word}`"
        if lines[-1] and len(lines[-1]) + len(piece) > 130:
            lines.append("")
        lines[-1] += f" {piece}" if lines[-1] else piece
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

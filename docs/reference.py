"""Generator of docs/client/reference.md from the signatures and docstrings of the client.

The clients are described once, in their `firearrow.aio` form. Those of `firearrow` have the same names and parameters and block
where the asyncio client has a coroutine.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

import firearrow as fa
import firearrow.aio as aio
from firearrow.client import options
from firearrow.client.consumer import listener, queue_offsets, subscription
from firearrow.client.consumer.pull_consumer import PullConsumer
from firearrow.client.producer import delay, routing, transaction
from firearrow.client.sync.derive import BlockingMethod, SyncClient

CLIENTS = ("Producer", "TransactionProducer", "PushConsumer", "PullConsumer")
VALUES = ("Message", "ReceivedMessage", "MessageQueue", "SendResult", "SendStatus", "TransactionSendResult")
OTHERS = ("LocalTransactionState", "RetryLater", "Sql", "Credentials")
ALLOCATION = (
    "AllocationStrategy", "Averagely", "AveragelyByCircle", "ConsistentHash", "Configured", "MachineRoom", "MachineRoomNearby",
)  # fmt: skip
HOOKS = ("SendHook", "ConsumeHook", "EndTransactionHook", "SendContext", "ConsumeContext", "EndTransactionContext", "MessageKind")

ALIASES = {
    "NameServers": options, "Selector": routing, "Duration": options, "When": delay, "Expression": subscription,
    "StartFrom": queue_offsets, "Position": queue_offsets, "Listener": listener, "Execute": transaction, "Check": transaction,
}  # fmt: skip


def page() -> str:
    errors = sorted(name for name in fa.__all__ if _is_error(getattr(fa, name)) and name not in OTHERS)
    told = {*CLIENTS, *VALUES, *OTHERS, *ALLOCATION, *HOOKS, *errors}
    left = set(fa.__all__) - told
    assert not left, f"the reference has no place for {sorted(left)}: give them one in docs/reference.py"
    parts = [
        """<!-- Written by scripts/docs from the docstrings in src/firearrow/client: change those, not this page. -->
# Python client reference

All names are in `firearrow`. The clients are described in their `firearrow.aio` form. Those in `firearrow` have the same methods
without `async` and `await`; a method that returns an `asyncio.Future` returns a `concurrent.futures.Future` there.
""",
        "## Clients\n",
        *(_client(name) for name in CLIENTS),
        "### Options of every client\n\nKeywords of every client in addition to its own.\n",
        _code(options.KEYWORD_HELP),
        "### Types of arguments\n",
        _aliases(),
        "## Messages and results\n",
        *(_class(name) for name in (*VALUES, *OTHERS)),
        "## Errors\n",
        *(_class(name) for name in errors),
        "## Allocation of queues\n",
        *(_class(name) for name in ALLOCATION),
        "## Hooks\n",
        *(_class(name) for name in HOOKS),
    ]
    return "\n".join(parts)


def _client(name: str) -> str:
    cls, sync = getattr(aio, name), getattr(fa, name)
    lines = [f"### {name}\n", _code(_signature(name, cls.__init__)), _doc(cls)]
    if cls.__init__.__doc__:
        lines.append(_preformatted(cls.__init__))
    for method in _public_methods(cls, sync):
        lines += [_code(_signature(method, getattr(cls, method))), _doc(getattr(cls, method))]
    if cls is PullConsumer:
        lines.append(_code("async for message in consumer") + "\n" + _doc(cls.__anext__))
    return "\n".join(lines)


def _public_methods(cls: type, sync: type[SyncClient[Any]]) -> Iterator[str]:
    """Yield the methods that the sync class has too, in source order, and `wait_for_capacity`, which only asyncio needs."""
    derived = {name for name, value in inspect.getmembers(sync) if isinstance(value, BlockingMethod) and not name.startswith("_")}
    derived |= {"run"} & vars(sync).keys()
    for name, value in vars(cls).items():
        if callable(value) and (name in derived or name in ("start", "close", "wait_for_capacity")):
            yield name


def _aliases() -> str:
    """The names that signatures use for what can be one of several things, as the source defines them."""
    rows: list[tuple[str, ...]] = []
    for name, module in ALIASES.items():
        (text,) = re.findall(rf"^{name} = (\([^)]*\n\)|[^\n]+)$", inspect.getsource(module), flags=re.MULTILINE)
        text = " ".join(text.strip("()").split()) if "\n" in text else text
        rows.append((f"`{name}`", f"`{text}`"))
    return _table(("", ""), rows)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _class(name: str) -> str:
    cls: Any = getattr(fa, name)
    lines = [f"### {name}\n"]
    if _is_error(cls):
        bases = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
        own_constructor = "__init__" in vars(cls)
        if own_constructor:
            lines.append(_code(_signature(name, cls.__init__)))
        lines.append(f"Subclass of {bases}. {_doc(cls)}" if bases != "`Exception`" else _doc(cls))
    elif issubclass(cls, enum.Enum):
        lines += [_doc(cls), "\n".join(f"- `{member.name}` = `{member.value!r}`" for member in cls) + "\n"]
    elif dataclasses.is_dataclass(cls):
        lines += [_doc(cls), _fields(cls)]
    else:
        if "__init__" in vars(cls) and not getattr(cls, "_is_protocol", False) and name != "ReceivedMessage":
            lines.append(_code(_signature(name, cls.__init__)))
        lines += [_doc(cls), _members(cls)]
    return "\n".join(line for line in lines if line)


def _fields(cls: Any) -> str:
    """A table of a dataclass's fields, with the comments of their lines."""
    comments = dict(re.findall(r"^    (\w+): [^\n#]*?# ([^\n]+)$", inspect.getsource(cls), flags=re.MULTILINE))
    rows = [
        (f"`{one.name}`", f"`{one.type}`", "" if _required(one) else f"`{_default_of(one)!r}`", comments.get(one.name, ""))
        for one in dataclasses.fields(cls)
    ]
    return _table(("", "type", "default", ""), rows)


def _required(one: dataclasses.Field[Any]) -> bool:
    return one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING


def _default_of(one: dataclasses.Field[Any]) -> Any:
    return one.default_factory() if one.default_factory is not dataclasses.MISSING else one.default


def _members(cls: Any) -> str:
    """Properties and methods; attributes are named in the docstring."""
    lines = [f"- `{name}`" for name in vars(cls).get("__slots__", ()) if not name.startswith("_")]
    for name, value in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(value, property) and value.fget is not None:
            kind = value.fget.__annotations__.get("return", "")
            said = inspect.getdoc(value)
            lines.append(f"- `{name}`: `{kind}`" + (f". {' '.join(said.split())}" if said else ""))
        elif inspect.isfunction(value):
            said = inspect.getdoc(value)
            lines.append(f"- `{_one_line(name, value)}`" + (f": {' '.join(said.split())}" if said else ""))
    return "\n".join([*lines, ""]) if lines else ""


def _signature(name: str, function: Any) -> str:
    """As in the source, each parameter that may be left out on a line of its own if there are many."""
    parts = _parameters(function)
    prefix = "async " if inspect.iscoroutinefunction(function) else ""
    result = inspect.signature(function).return_annotation
    arrow = f" -> {result}" if function.__name__ != "__init__" and result not in (inspect.Signature.empty, "None") else ""
    line = f"{prefix}{name}({', '.join(parts)}){arrow}"
    if len(line) <= 120:
        return line
    body = "".join(f"    {part},\n" for part in parts)
    return f"{prefix}{name}(\n{body}){arrow}"


def _one_line(name: str, function: Any) -> str:
    return f"{name}({', '.join(_parameters(function))})"


def _parameters(function: Any) -> list[str]:
    parts, keyword_only = [], False
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            parts.append("**options")
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            parts.append("*")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        annotation = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
        parts.append(f"{parameter.name}{annotation}{default}")
    return parts


def _doc(thing: Any) -> str:
    """A docstring as paragraphs; what is indented in it is shown as it is."""
    text = inspect.cleandoc(thing.__doc__ or "")
    if isinstance(thing, type) and text.startswith(f"{thing.__name__}("):
        return ""  # what dataclasses make up
    parts = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    "):
            parts.append(_code(inspect.cleandoc(paragraph)).rstrip("\n"))
        else:
            parts.append(" ".join(paragraph.split()))
    return "\n\n".join(parts) + "\n" if text else ""


def _preformatted(function: Any) -> str:
    """The docstring of a constructor: sentences and a table of keywords, without the keywords that all clients share."""
    text = (inspect.getdoc(function) or "").removesuffix(options.KEYWORD_HELP).strip()
    return "\n".join(_code(part) if re.search(r"\S   ", part) else " ".join(part.split()) + "\n" for part in text.split("\n\n"))


def _code(text: str) -> str:
    return f"```\n{text}\n```\n"


def _is_error(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseException)

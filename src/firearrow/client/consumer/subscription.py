"""Subscriptions: a topic and a filter by tags or by an SQL92 expression.

    "*", "" or None       every message
    "new || paid"         messages with one of these tags (split at `||`, trimmed, empty parts ignored)
    Sql("amount > 100")   messages for which the expression is true; evaluated by the broker

A broker compares the hash codes of tags, which can collide, so the client compares the text again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firearrow.wire.bodies.client import SubscriptionData
from firearrow.wire.java_hash import hash_code

TAG = "TAG"
SQL92 = "SQL92"
EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over message properties, for `subscribe={"Orders": Sql("amount > 100 AND region = 'eu'")}`."""

    expression: str


Expression = str | Sql | None


@dataclass(frozen=True, slots=True)
class Subscription:
    """A parsed subscription to one topic."""

    topic: str
    expression: str
    kind: str  # TAG or SQL92
    version: int  # time of subscribing; brokers and members use the newest
    tags: frozenset[str] | None  # None: all messages

    @property
    def data(self) -> SubscriptionData:
        """The form used in heartbeats."""
        tags = sorted(self.tags or ())
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.expression,
            tags_set=tags,
            code_set=[hash_code(tag) for tag in tags],
            sub_version=self.version,
            expression_type=self.kind,
        )

    def wants(self, tag: str | None) -> bool:
        return self.tags is None or tag in self.tags


def subscription(topic: str, expression: Expression, version: int) -> Subscription:
    """Parse an expression. `version` is the time of subscribing in ms. ValueError for an expression without tags or condition."""
    if isinstance(expression, Sql):
        if not expression.expression.strip():
            raise ValueError(f"the SQL92 expression for topic {topic!r} is blank; write a condition, or '*' for all messages")
        return Subscription(topic, expression.expression, SQL92, version, None)
    if expression is None or expression.strip() in ("", EVERYTHING):
        return Subscription(topic, EVERYTHING, TAG, version, None)
    tags = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    if not tags:
        raise ValueError(f"the expression {expression!r} for topic {topic!r} names no tag; use '*', or tags joined by '||'")
    return Subscription(topic, expression, TAG, version, tags)


def as_expressions(subscribe: str | Mapping[str, Expression]) -> Mapping[str, Expression]:
    """Return the expression for each topic; a plain string is a topic of which all messages are consumed."""
    if isinstance(subscribe, str):
        return {subscribe: EVERYTHING}
    if not isinstance(subscribe, Mapping):
        raise TypeError(f"subscribe is {subscribe!r}, expected a topic or a mapping of topics to expressions")
    return subscribe

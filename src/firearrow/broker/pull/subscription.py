"""Subscriptions of consumers: tag expressions and the form in which a queue is filtered by them.

    expression      every message                 some tags
                    "*", "", absent               "TagA || TagB"   (split at "||", trimmed, empty parts ignored)
    tags_set        empty                         {"TagA", "TagB"}
    code_set        empty                         {2598919, 2598920}   String.hashCode of each tag, as in the consume queue
    tag_codes       None                          frozenset of the same, for the store

The broker compares hash codes only. Two tags with the same code both pass, and the client compares the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.broker.requests.responses import Refused
from firearrow.wire.bodies.client import SubscriptionData
from firearrow.wire.codes import ResponseCode
from firearrow.wire.java_hash import hash_code

if TYPE_CHECKING:
    from firearrow.broker.sql92 import Filter

TAG = "TAG"
SQL92 = "SQL92"
MAX_TAG_CHARACTERS = 32_768  # of an expression; a tag costs about 1 us


def build(topic: str, expression: str | None, sub_version: int = 0, expression_type: str | None = TAG) -> SubscriptionData:
    """Return the subscription for an expression. Rejects (23) an expression without tags, or a very long one."""
    if expression_type and expression_type != TAG:
        return SubscriptionData(
            topic=topic, sub_string=expression or "", sub_version=sub_version, expression_type=expression_type
        )
    if is_everything(expression):
        return SubscriptionData(topic=topic, sub_string="*", sub_version=sub_version, expression_type=TAG)
    assert expression is not None
    if len(expression) > MAX_TAG_CHARACTERS:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the subscription expression of topic {topic} has {len(expression)} characters; {MAX_TAG_CHARACTERS} is the maximum",
        )
    tags = split_tags(expression)
    if not tags:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the subscription expression {expression!r} of topic {topic} names no tag; use '*', or tags joined by '||'",
        )
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tags,
        code_set=[hash_code(tag) for tag in tags],
        sub_version=sub_version,
        expression_type=TAG,
    )


def is_everything(expression: str | None) -> bool:
    return not expression or expression.strip() in ("", "*")


def split_tags(expression: str) -> list[str]:
    """Return the tags of an expression, each once, in their order."""
    return list(dict.fromkeys(tag for part in expression.split("||") if (tag := part.strip())))


def tag_codes(subscription: SubscriptionData) -> frozenset[int] | None:
    """Return the hash codes of which a message must have one; None for every message, and for filters other than tags.

    They are computed from the expression, because some clients send no code set, or send text in it.
    """
    if (subscription.expression_type or TAG) != TAG or is_everything(subscription.sub_string):
        return None
    return frozenset(hash_code(tag) for tag in split_tags(subscription.sub_string)) or None


def check_expression_type(expression_type: str | None, *, enabled: bool) -> None:
    """Reject filters that this broker does not support. `enabled` is enablePropertyFilter."""
    if (expression_type or TAG) == TAG or (expression_type == SQL92 and enabled):
        return
    remedy = "set enablePropertyFilter=true on the broker" if expression_type == SQL92 else "use TAG or SQL92"
    raise Refused(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {str(expression_type)[:64]}; {remedy}, or subscribe by tags",
    )


def compile_sql(expression: str) -> Filter:
    """Compile an SQL92 expression. Raises ValueError that names the position of the error.

    The compiler is imported at its first use: most brokers never need it.
    """
    from firearrow.broker.sql92 import compile_expression

    return compile_expression(expression)

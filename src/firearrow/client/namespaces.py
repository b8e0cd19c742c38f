"""Namespaces: `ns%topic` and `%RETRY%ns%group` on the brokers are `topic` and `%RETRY%group` for users.

System topics and groups have no namespace.
"""

from __future__ import annotations

from typing import Final

from firearrow.wire.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic

_GROUP_TOPIC_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX)


def with_namespace(name: str, namespace: str) -> str:
    """Return the name of a topic or group on the brokers. A name that has the namespace is returned unchanged."""
    if not namespace or is_system_topic(name) or is_system_group(name):
        return name
    prefix, own = _split(name)
    return name if own.startswith(f"{namespace}%") else f"{prefix}{namespace}%{own}"


def without_namespace(name: str, namespace: str) -> str:
    """Return the name for users. A name without this namespace is returned unchanged."""
    if not namespace:
        return name
    prefix, own = _split(name)
    return prefix + own.removeprefix(f"{namespace}%")


def _split(name: str) -> tuple[str, str]:
    for prefix in _GROUP_TOPIC_PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name

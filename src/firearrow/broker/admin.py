"""What operators ask of a broker (mqadmin, the dashboard, replicas): the handlers of all admin modules together.

| module         | duty                                            | codes                                            |
|----------------|-------------------------------------------------|--------------------------------------------------|
| admin_topics   | topics: create, change, delete, describe, clean | 17 18 21 202 215 300 305 306 316 329 343 345 351 |
| admin_groups   | groups and who is connected                     | 200 201 203 204 207 225 328 352 353              |
| admin_progress | how far groups are, and what is in a queue      | 43 45 208 303 308 314 317 321                    |
| admin_reset    | moving a group to other offsets                 | 222                                              |
| admin_forward  | questions that only a consumer can answer       | 223 307 309                                      |
| admin_broker   | the broker itself: settings, state, statistics  | 25 26 28 60 61 315 907                           |
"""

from __future__ import annotations

from firearrow.broker import admin_broker, admin_forward, admin_groups, admin_progress, admin_reset, admin_topics
from firearrow.broker.parts import BrokerParts, Handler


def handlers(broker: BrokerParts) -> dict[int, Handler]:
    table: dict[int, Handler] = {}
    for module in (admin_topics, admin_groups, admin_progress, admin_reset, admin_forward, admin_broker):
        for code, handler in module.handlers(broker).items():
            assert code not in table, f"two handlers for request code {code}"
            table[code] = handler
    return table

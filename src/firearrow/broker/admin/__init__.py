"""What operators ask of a broker (mqadmin, the dashboard, replicas): the handlers of all admin modules together.

| module         | duty                                            | codes                                            |
|----------------|-------------------------------------------------|--------------------------------------------------|
| topics         | topics: create, change, delete, describe, clean | 17 18 21 202 215 300 305 306 316 329 343 345 351 |
| groups         | groups and who is connected                     | 200 201 203 204 207 225 328 352 353              |
| progress       | how far groups are, and what is in a queue      | 43 45 208 303 308 314 317 321                    |
| reset          | moving a group to other offsets                 | 222                                              |
| consumers      | questions that only a consumer can answer       | 223 307 309                                      |
| broker         | the broker itself: settings, state, statistics  | 25 26 28 60 61 315 907                           |
"""

from __future__ import annotations

from firearrow.broker.admin import broker as broker_admin
from firearrow.broker.admin import consumers, groups, progress, reset, topics
from firearrow.broker.context import BrokerContext, Handler


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    table: dict[int, Handler] = {}
    for module in (topics, groups, progress, reset, consumers, broker_admin):
        for code, handler in module.handlers(broker).items():
            assert code not in table, f"two handlers for request code {code}"
            table[code] = handler
    return table

"""Administrative requests (mqadmin, the dashboard, replicas).

| module         | duty                                            | codes                                            |
|----------------|-------------------------------------------------|--------------------------------------------------|
| topics         | topics: create, change, delete, describe, clean | 17 18 21 202 215 300 305 306 316 329 343 345 351 |
| groups         | groups and connected clients                    | 200 201 203 204 207 225 328 352 353              |
| progress       | consumer progress and contents of queues        | 43 45 208 303 308 314 317 321                    |
| reset          | moving a group to other offsets                 | 222                                              |
| consumers      | requests forwarded to consumers                 | 223 307 309                                      |
| broker         | the broker itself: settings, state, statistics  | 25 26 28 60 61 315 907                           |
"""

from __future__ import annotations

from firearrow.broker.admin import broker, consumers, groups, progress, reset, topics

MODULES = (topics, groups, progress, reset, consumers, broker)

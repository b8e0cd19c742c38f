"""Command line of the benchmarks, `scripts/bench`: python -m bench.run [BENCHMARK] [options]."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from bench import alone, attacks, catchup, client, compare, growth, ha, load, metrics, queues, recovery, spark, start
from bench.apache import Apache
from bench.firearrow import Firearrow
from bench.process import BenchError
from bench.session import HERE, Session
from bench.targets import Target

BENCHMARKS: dict[str, Callable[[Session], bool]] = {
    "compare": compare.run,
    "alone": alone.run,
    "start": start.run,
    "queues": queues.run,
    "recovery": recovery.run,
    "growth": growth.run,
    "client": client.run,
    "ha": ha.run,
    "catchup": catchup.run,
    "metrics": metrics.run,
    "spark": spark.run,
    "attacks": attacks.run,
}
SUMMARIES = """\
compare   every load on Apache RocketMQ 5.5.0 and on Firearrow, in turns; medians and ratios (the default)
alone     CPU time per message of our broker under every load; with two --checkout, the ratio of the second to the first
start     time from the command to open ports, idle memory
queues    2,500 topics of 4 queues compared with one topic of 4: send rate, memory, restart
recovery  a log of 1 GiB after kill -9, then with queue and index files deleted
growth    cost per message from 10 thousand to 10 million stored messages
client    our Python client compared with Apache's Java client, both on our broker: sending, consuming, send latency
ha        replicated groups on one machine: master with slave, and elected group of three, compared with Apache's
catchup   catch-up time of a slave, and of a member of an elected group, that is 1 GiB behind
metrics   send rate of our broker with and without scraped metrics
spark     the Spark source, sink and archive compared with Spark's own formats and our client; cold start
attacks   time that a client is blocked, and memory, while another client attacks our broker and name server
"""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        session = _session(options)
        load.build()
        for target in session.targets:
            session.say(f"preparing {target.name}")
            target.prepare()
        passed = BENCHMARKS[options.benchmark](session)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if not passed:
        print("bench: a limit was missed", file=sys.stderr)
    return 1 if options.strict and not passed else 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("scripts/bench", description=SUMMARIES, formatter_class=formatter)
    add = parser.add_argument
    add("benchmark", nargs="?", default="compare", choices=list(BENCHMARKS))
    add("--rounds", type=_positive, metavar="N", help="rounds (default 3; 1 with --quick)")
    add("--seconds", type=_seconds, metavar="S", help="measured seconds of each load (default 5; 2 with --quick)")
    add(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="loads (compare, alone, ha, catchup) or attacks with TEXT in their name; may be repeated",
    )
    add("--quick", action="store_true", help="a rough measurement in a few minutes: one round, short loads, smaller stores")
    add("--strict", action="store_true", help="exit code 1 if a limit is missed")
    add("--ours", choices=["firearrow", "apache"], default="firearrow", help="broker checked against the limits")
    add("--reference", choices=["apache", "none"], help="broker to compare with (default: apache for compare, start and ha)")
    add(
        "--checkout",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="measure DIR/.venv/bin/firearrow; a second one is compared with the first",
    )
    add("--json", action="store_true", help="alone: print JSON instead of a table")
    add("--work", type=Path, default=HERE / "work", metavar="DIR", help="directory of temporary stores (default bench/work)")
    return parser


def _session(options: argparse.Namespace) -> Session:
    compared = options.benchmark in ("compare", "start", "ha")
    touch_heap = options.benchmark == "compare"
    checkouts = [Firearrow(checkout) for checkout in options.checkout]
    if len(checkouts) > 2:
        raise BenchError(f"--checkout was given {len(checkouts)} times, expected at most 2")
    ours: Target = Apache(touch_heap=touch_heap) if options.ours == "apache" else Firearrow()
    reference: Target | None = None
    if checkouts:
        ours, reference = checkouts[-1], checkouts[0] if len(checkouts) == 2 else None
    elif options.reference == "apache" or (options.reference is None and compared):
        reference = Apache(touch_heap=touch_heap)
    return Session(
        ours=ours,
        reference=reference,
        rounds=options.rounds or (1 if options.quick else 3),
        seconds=options.seconds or (2.0 if options.quick else 5.0),
        quick=options.quick,
        only=options.only,
        work=options.work,
        json=options.json,
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 0.1 and 600")
    return value


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)  # so that child processes are ended too
    sys.exit(main())

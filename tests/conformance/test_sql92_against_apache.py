"""The SQL92 filter compared with Apache's: equal results for equal expressions and messages.

The unit tests use results of Apache's filter recorded in tests/fixtures/sql92. Here they are computed again, with many more
expressions. When the cases change, write the file again with

    python -m tests.conformance.test_sql92_against_apache
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from firearrow.broker.sql92 import SqlError, compile_expression
from tests.broker import sql92_cases, sql92_recorded
from tests.conformance import builds
from tests.conformance.servers import SMALL_JVM

PROGRAM = Path(__file__).parent / "java" / "filter" / "SqlVerdicts.java"


def test_the_recorded_verdicts_are_apaches() -> None:
    recorded = sql92_recorded.load()
    asked = apache_verdicts([case.expression for case in recorded], sql92_cases.MESSAGES)
    assert [case.verdicts for case in recorded] == asked


def test_thousands_of_generated_expressions_get_apaches_verdicts() -> None:
    expressions = sql92_cases.generated(seed=5_5_0, count=4000)
    differences = []
    for expression, theirs in zip(expressions, apache_verdicts(expressions, sql92_cases.MESSAGES), strict=True):
        ours, selected = our_verdicts(expression), sql92_recorded.selected(theirs)
        if ours != selected:
            differences.append(f"{expression!r}\n  ours   {ours}\n  theirs {theirs}")
    assert not differences, f"{len(differences)} differ\n" + "\n".join(differences[:20])


def our_verdicts(expression: str) -> str | None:
    try:
        matches = compile_expression(expression).matches
    except SqlError:
        return None
    return "".join("T" if matches(message.encode()) else "." for message in sql92_cases.MESSAGES)


def apache_verdicts(expressions: Sequence[str], messages: Sequence[str]) -> list[str | None]:
    """Return for each expression a letter per message (T, F, N for null, E for an error), or None if it does not compile."""
    requests = "".join(json.dumps({"expression": text, "properties": messages}) + "\n" for text in expressions)
    command = ["java", *SMALL_JVM, "-cp", builds.java_server(), str(PROGRAM)]
    done = subprocess.run(command, input=requests.encode(), capture_output=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    answers = [json.loads(line).get("verdicts") for line in done.stdout.decode().splitlines()]
    assert len(answers) == len(expressions)
    return answers


def record() -> None:
    expressions = [*dict.fromkeys(text.strip(" ") for text in (*sql92_cases.WRITTEN, *sql92_cases.generated(92, 600)))]
    sql92_recorded.save(expressions, apache_verdicts(expressions, sql92_cases.MESSAGES))


if __name__ == "__main__":
    record()

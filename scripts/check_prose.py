"""Style check for docstrings, comments, messages and pages: reports phrases that the style guide in CONTRIBUTING.md rules out.

    python scripts/check_prose.py [PATH ...]     default: the source tree, the tests, the documentation

Prints `path:line: phrase`; the exit status is 1 if anything was found.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DEFAULT = ("src", "tests", "bench", "docs", "examples", "scripts")

# Words and turns of phrase that read as translated or vague, each with its plain replacement.
REPLACEMENTS = {
    "and its like": "and similar",
    "anew": "again",
    "any more": "no longer",
    "are told": "name the actor: receive, are notified",
    "as it were": "leave out",
    "at hand": "available",
    "begun anew": "restarted",
    "by and by": "eventually",
    "for the asking": "leave out",
    "go on with": "continue with",
    "goes on": "continues",
    "has it that": "leave out",
    "hither": "here",
    "in vain": "without success",
    "is none": "is absent",
    "is told": "name the actor: receives, is notified",
    "lay down": "stop, release",
    "lays down": "stops, releases",
    "looked at": "inspected",
    "mend": "fix",
    "mended": "fixed",
    "mends": "fixes",
    "misfortune": "fault",
    "no secret": "leave out",
    "of its own accord": "by itself",
    "play ball": "leave out",
    "somebody": "name the actor",
    "take up": "start",
    "taken up": "started",
    "takes up": "starts",
    "the like of": "such as",
    "thereby": "which",
    "to be had": "available",
    "went on": "continued",
    "what is there": "name the thing",
    "whoever": "name the actor",
    "whomever": "name the actor",
    "would rather": "prefer",
}
PHRASES = re.compile(r"\b(" + "|".join(sorted(map(re.escape, REPLACEMENTS), key=len, reverse=True)) + r")\b", re.IGNORECASE)
QUESTION_WORD = re.compile(r"(What|Where|Who|Whoever|How|Why|When|Whether|That)\b[^?]*$")


def check_text(text: str, line: int) -> Iterator[tuple[int, str]]:
    for number, row in enumerate(text.splitlines(), line):
        for match in PHRASES.finditer(row):
            yield number, f"{match[0]!r}: {REPLACEMENTS[match[0].lower()]}"


def check_python(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from check_text(token.string, token.start[0])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from check_text(node.value, node.lineno)
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node)
            if doc and QUESTION_WORD.match(doc.splitlines()[0]):
                yield node.body[0].lineno, f"docstring opens with {doc.split()[0]!r}: use a noun phrase or a verb"


def main(paths: list[str]) -> int:
    roots = [Path(path) for path in paths] or [*(ROOT / name for name in DEFAULT), *ROOT.glob("*.md")]
    files = [file for root in roots for file in ([root] if root.is_file() else sorted(root.rglob("*")))]
    found = 0
    for file in files:
        if file.suffix not in (".py", ".md") or file.resolve() == Path(__file__).resolve():
            continue
        text = file.read_text(encoding="utf-8")
        for line, problem in check_python(text) if file.suffix == ".py" else check_text(text, 1):
            print(f"{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}:{line}: {problem}")
            found += 1
    if found:
        print(f"{found} places to rewrite in plain technical English")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

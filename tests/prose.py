"""Check the wording of docstrings, comments and messages: ``python -m tests.prose``, part of ``make check``.

It refuses patterns that readers had to read twice: docstrings that begin with "What" or "See", indefinite persons as
actors, and sentences of more than 40 words. A line that ends in ``# prose: <reason>`` is exempt.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_WORDS = 40
FIRST_WORDS = re.compile(r"(What\b|See\b|As :\w+:|Likewise\b)")
_PERSONS = r"\b(whoever|somebody|nobody|who shall|such as that|all the same)\b"  # prose: the patterns
PERSONS = re.compile(_PERSONS, re.IGNORECASE)
# Words of our own where the field has a term; the guide's table, as far as a word has no other use here.
TERMS = {
    "for good": "permanently",  # prose: the patterns
    "on its way": "in flight",  # prose: the patterns
    "on their way": "in flight",  # prose: the patterns
    "handed on": "enqueued, dispatched",  # prose: the patterns
    "hands on": "enqueues, dispatches",  # prose: the patterns
    "hand on": "enqueue, dispatch",  # prose: the patterns
    "given up": "failed, abandoned",  # prose: the patterns
    "gives up": "fails, abandons",  # prose: the patterns
    "mended": "fixed, repaired",  # prose: the patterns
    "how far": "offset, checkpoint",  # prose: the patterns
    "is told": "is notified, is reported",  # prose: the patterns
    "are told": "are notified, are reported",  # prose: the patterns
    "behind a channel": "with a durable channel",  # prose: the patterns
    "of before": "earlier, recovered",  # prose: the patterns
    "twins": "native and pure implementations",  # prose: the patterns
    "comes to nothing": "fails",  # prose: the patterns
    "see the module": "say it here, or nothing",  # prose: the patterns
}
TERM = re.compile(r"\b(" + "|".join(TERMS) + r")\b", re.IGNORECASE)
EXEMPT = re.compile(r"# prose: \w")
# The end of a sentence, of a paragraph, of an item of a list, or of a field such as ``:param n:``.
SENTENCE_END = re.compile(r"[.!?:](?=[\s)\"'`]|$)|\n\s*\n|\n\s*(?=[-*] |\d+\. |:\w+[^:\n]*:|\|)")
LITERAL_BLOCK = re.compile(r"(?ms)::\n\n(?:[ \t]+[^\n]*\n?|\n)+|^[ \t]*(?:>>>|\.\.\.)[^\n]*\n(?:[ \t]*[^\s][^\n]*\n)*")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Text(NamedTuple):
    """One docstring, comment or message, and the line where it starts."""

    line: int
    kind: str
    text: str


def docstrings(tree: ast.AST) -> Iterator[Text]:
    """Yield every docstring, those of attributes included."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if isinstance(node, DOCUMENTED) else []:
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield Text(statement.lineno, "docstring", statement.value.value)


def messages(tree: ast.AST) -> Iterator[Text]:
    """Yield every other string with a space in it, f-strings with a mark for each value."""
    documented = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    inner = {id(part) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for part in ast.walk(n) if part is not n}
    for node in ast.walk(tree):
        if id(node) in documented or id(node) in inner:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Text(node.lineno, "message", node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield Text(node.lineno, "message", "".join(parts))


def comments(source: str) -> Iterator[Text]:
    """Yield every comment; those on consecutive lines are one."""
    block: list[Text] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            own_line = not token.line[: token.start[1]].strip()
            if block and (not own_line or token.start[0] != block[-1].line + 1):
                yield Text(block[0].line, "comment", "\n".join(part.text for part in block))
                block = []
            block.append(Text(token.start[0], "comment", token.string.lstrip("#: ")))
    if block:
        yield Text(block[0].line, "comment", "\n".join(part.text for part in block))


def faults(text: Text) -> Iterator[str]:
    """Yield what is to be reworded in a text."""
    if text.kind == "docstring" and (first := FIRST_WORDS.match(text.text.strip())):
        yield f"begins with {first[0]!r}: begin with a verb and its object"
    unwrapped = " ".join(text.text.split())
    for person in PERSONS.finditer(unwrapped):
        yield f"{person[0]!r}: name the actor, in the field's terms"
    for term in TERM.finditer(unwrapped):
        yield f"{term[0]!r}: the field's term is {TERMS[term[0].lower()]!r}"
    if text.kind == "message" and text.text.count("\n") > 1:  # a program or a page, not a sentence
        return
    for sentence in SENTENCE_END.split(LITERAL_BLOCK.sub("\n\n", text.text)):
        if (words := len(sentence.split())) > MOST_WORDS:
            yield f"a sentence of {words} words, at most {MOST_WORDS}: {' '.join(sentence.split()[:8])}…"


def check(path: Path) -> Iterator[str]:
    """Yield the faults of one Python or Cython file, as ``path:line: kind: fault``."""
    source = path.read_text()
    texts = list(comments(source))
    if path.suffix == ".py":
        tree = ast.parse(source)
        texts += [*docstrings(tree), *messages(tree)]
    lines = source.splitlines()
    for text in texts:
        last = text.line + text.text.count("\n")
        if not any(EXEMPT.search(line) for line in lines[text.line - 1 : last]):
            yield from (f"{path}:{text.line}: {text.kind}: {fault}" for fault in faults(text))


def main(names: list[str]) -> int:
    """Print the faults of the named files, or of all that are in the repository; return 1 if there are any."""
    listed = (
        names
        or subprocess.run(
            ["git", "ls-files", "*.py", "*.pyx", "*.pxd"], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    found = [fault for name in listed for fault in check(Path(name))]
    print("\n".join(found), end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

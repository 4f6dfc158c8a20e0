"""The check of wording in ``make check`` refuses what the guide refuses, and nothing else."""

from pathlib import Path

import pytest

from tests import prose

LONG = " ".join(["word"] * 41)
REFUSED = {
    "what": 'def f():\n    """What is sent."""\n',
    "see": 'class C:\n    """See the base."""\n',
    "likewise": '"""Likewise, of a file."""\n',
    "as": 'def f():\n    """As :meth:`g`, of one."""\n',
    "person": 'def f():\n    """Return it, whoever\n    asks."""\n',  # prose: a case
    "wrapped": "# It stays all the\n# same.\n",  # prose: a case
    "message": 'raise ValueError("nobody listens")\n',  # prose: a case
    "formatted": 'raise ValueError(f"{port}: nobody listens")\n',  # prose: a case
    "term": 'def f():\n    """Return the batches on their\n    way."""\n',  # prose: a case
    "long": f'"""{LONG}."""\n',
    "attribute": 'class C:\n    """One C."""\n\n    a: int\n    """What a is."""\n',
}
ACCEPTED = {
    "verb": 'def f():\n    """Return what was sent."""\n',
    "two sentences": f'"""{LONG[:-5]}. {LONG[:-5]}."""\n',
    "items": f'"""Items:\n\n- {LONG[:-10]}\n- {LONG[:-10]}\n"""\n',
    "example": f'"""Return it.\n\n    >>> {LONG}\n    {LONG}\n"""\n',
    "exempt": "# nobody  # prose: the name of a Unix user\n",
    "one word": 'user = "nobody"\n',  # prose: a case
}


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_patterns_of_the_guide_are_refused(source: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(source)
    assert len(list(prose.check(tmp_path / "module.py"))) == 1


@pytest.mark.parametrize("source", ACCEPTED.values(), ids=ACCEPTED)
def test_plain_sentences_are_accepted(source: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(source)
    assert list(prose.check(tmp_path / "module.py")) == []

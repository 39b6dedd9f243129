"""RocketMQ's Spring Boot starter, as its users have it: an application of annotations and a template, unchanged."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.interop.apache_toolchain import ToolchainMissingError, cache_directory, java_project
from tests.interop.clients import raw
from tests.interop.clients.fleet import unavailable
from tests.interop.scenarios.conftest import Theatre
from tests.interop.scenarios.stage import Mode

HERE = Path(__file__).resolve().parent
MAIN_CLASS = "org.pymq.interop.spring.SpringTool"
TOPICS = ("plain", "ordered", "failing", "asked", "committed")
QUEUE_COUNT = 4
TIMEOUT_SECONDS = 100


def test_spring_application_sends_receives_asks_and_commits(theatre: Theatre, tmp_path: Path) -> None:
    """Goal: the starter works unchanged. Method: an application with five listeners tells what each was given.

    Tags filter, payloads are converted, a delayed message comes, order is kept, a failed message comes again, a request
    is answered, and of three transactions the rolled-back one is never seen.
    """
    try:
        toolchain = java_project(HERE / "spring", cache_directory() / "spring")
    except ToolchainMissingError as problem:
        unavailable(problem)
        raise
    stage = theatre.stage(Mode())
    broker = stage.address("main")
    for topic in TOPICS:
        raw.create_topic(broker, stage.namesrv, f"spring-{topic}", QUEUE_COUNT)
    command = toolchain.command(
        MAIN_CLASS,
        f"--rocketmq.name-server={stage.namesrv}",
        "--rocketmq.producer.group=spring-producers",
        "--rocketmq.producer.send-message-timeout=10000",
        "--spring.main.banner-mode=off",
        home=tmp_path,
    )
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
    )
    facts = dict(re.findall(r"(?m)^FACT (\S+) (.*)$", ended.stdout))
    assert facts == {
        "sent": "SEND_OK",
        "asynchronous": "true",
        "reply": "about the weather: yes",
        "plain": "[person-1 1, person-2 2, person-4 4, person-5 5]",
        "ordered": "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
        "failed": "[0, 1]",
        "committed": "[commit, unknown]",
        "more": "0",
    }, ended.stdout + ended.stderr

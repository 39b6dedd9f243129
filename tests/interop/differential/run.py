"""One sequence on one broker: every answer, after what was sent has become visible."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.interop.differential.compare import Normal, is_send, normal
from tests.interop.differential.sequences import MAX_OFFSET, V2_NAMES, Step
from tests.interop.differential.waiting import LAST_END, LAST_PLACE, SEND_BACK
from tests.interop.differential.wire import ClosedError, Reply, Wire

VISIBLE_TIMEOUT_S = 10.0
SENT_BACK_S = 0.05  # until what waits is in its queue: the answer does not say where that is
SILENT: Normal = {"code": "silent", "remark": None, "fields": {}, "body": None}
CLOSED: Normal = {"code": "closed", "remark": None, "fields": {}, "body": None}


def play(address: str, steps: Sequence[Step]) -> list[tuple[Normal, bytes]]:
    """The normalised answers to *steps*, in order, each with its raw bytes; a closed connection is an answer too."""
    answers: list[tuple[Normal, bytes]] = []
    wire = Wire(address)
    try:
        marks = {LAST_PLACE: "0", LAST_END: "0"}
        for step in steps:
            fields = {name: marks.get(value or "", value) for name, value in step.fields.items()}
            try:
                reply = wire.ask(step.code, fields, step.body, binary=step.binary)
            except (ClosedError, TimeoutError) as failure:
                answers.append((SILENT if isinstance(failure, TimeoutError) else CLOSED, b""))
                wire.close()
                wire = Wire(address)
                continue
            answers.append((normal(step, reply), reply.raw))
            if is_send(step) and reply.code == 0:
                marks[LAST_PLACE] = str(int(reply.fields["msgId"][16:32], 16))
                await_visible(wire, step, reply)
            elif step.code == SEND_BACK:
                time.sleep(SENT_BACK_S)
            elif step.code == MAX_OFFSET and reply.code == 0:
                marks[LAST_END] = str(int(reply.fields["offset"]) - 1)
    finally:
        wire.close()
    return answers


def await_visible(wire: Wire, step: Step, reply: Reply) -> None:
    """A send is answered before its message can be pulled; wait, so that what follows does not depend on the moment."""
    topic = step.fields.get("topic") or step.fields.get(V2_NAMES["topic"])
    fields = {"topic": topic, "queueId": reply.fields["queueId"]}
    if "DELAY\x01" in (step.fields.get(V2_NAMES["properties"]) or ""):
        time.sleep(SENT_BACK_S)  # in a queue of its level, or of dead letters
        return
    wanted = int(reply.fields["queueOffset"]) + reply.fields["msgId"].count(",")
    deadline = time.monotonic() + VISIBLE_TIMEOUT_S
    while time.monotonic() < deadline:
        answer = wire.ask(MAX_OFFSET, fields, aside=True)
        if answer.code == 0 and int(answer.fields["offset"]) > wanted:
            return
        time.sleep(0.002)
    raise AssertionError(
        f"message {wanted} of {fields} was acknowledged and is not visible after {VISIBLE_TIMEOUT_S} s"
    )

"""Where pymq answers otherwise than Apache RocketMQ 5.5.0, each with its reason. Nothing else may differ.

A rule looks at the request and both answers and says whether the difference is this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.interop.differential.sequences import SEND_BATCH, Step

Normal = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """One listed difference."""

    name: str
    reason: str
    applies: Callable[[Step, Normal, Normal], bool]


def same_code(apache: Normal, pymq: Normal) -> bool:
    """Both say the same code, fields and body."""
    return all(apache[part] == pymq[part] for part in ("code", "fields", "body"))


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "error-wording",
        "An error made of a Java exception's text is worded by us: code, fields and body are the same.",
        lambda _step, apache, pymq: (
            same_code(apache, pymq)
            and apache["code"] == 1
            and is_exception_text(apache["remark"])
            and bool(pymq["remark"])
        ),
    ),
    Difference(
        "broken-batch",
        "A batch body that ends early is MESSAGE_ILLEGAL (13), not a SYSTEM_ERROR made of a BufferUnderflowException.",
        lambda step, apache, pymq: (
            step.code == SEND_BATCH and "Underflow" in (apache["remark"] or "") and pymq["code"] == 13
        ),
    ),
)


def is_exception_text(remark: str | None) -> bool:
    """Whether a remark is the name or the trace of a Java exception."""
    return remark is not None and ("Exception" in remark or "org.apache.rocketmq" in remark or "java." in remark)


def listed(step: Step, apache: Normal, pymq: Normal) -> Difference | None:
    """The difference that explains *apache* against *pymq*, or None."""
    return next((item for item in DIFFERENCES if item.applies(step, apache, pymq)), None)

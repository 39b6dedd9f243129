"""From a finding to the command that shows its bytes: `python -m spark_jobs.show DUMP …`.

The evidence decides, because it says in words which offset it means; see `audits/base.py`. What stands in quotes there
was chosen by a client and is no place, whatever it says; and no place is outside the store.
"""

from __future__ import annotations

import re
import shlex

from spark_jobs.report.model import Finding, Report

SHOW = "python -m spark_jobs.show"
FILE = re.compile(r"\bfile (\S+) at (?:byte |position )?(\d+)")
ITEM = re.compile(r"\bitem (\d+) of file (\S+)")
CONFIGURATION = re.compile(r"\b(config/[\w.-]+)")
WHOLE_FILE = re.compile(r"^file (\S+)$")
TIMER = re.compile(r"\bposition (\d+) of the timer log")
PHYSICAL = re.compile(r"\bphysical offset (\d+)")
QUEUE = re.compile(r"\bqueue offset (\d+)")
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def command_for(finding: Finding, report: Report) -> str | None:
    """The command for *finding*; None when it is about no bytes, or about a store nobody named."""
    path = report.path_of(finding.store)
    arguments = place_of(finding)
    if path is None or arguments is None:
        return None
    return " ".join([SHOW, shlex.quote(path), *(shlex.quote(argument) for argument in arguments)])


def place_of(finding: Finding) -> list[str] | None:
    """The options of `show` that lead to *finding*."""
    evidence = QUOTED.sub('""', finding.evidence or "")
    if found := FILE.search(evidence):
        return ["--file", found[1], "--position", found[2]] if is_below(found[1]) else None
    if found := ITEM.search(evidence):
        return ["--index-item", found[2], found[1]] if is_below(found[2]) else None
    if found := TIMER.search(evidence):
        return ["--timer-log", found[1]]
    if found := PHYSICAL.search(evidence):
        return ["--physical-offset", found[1]]
    if found := CONFIGURATION.search(evidence) or WHOLE_FILE.search(evidence):
        return ["--file", found[1]] if is_below(found[1]) else None
    queue = finding.topic is not None and finding.queue is not None
    if queue and (found := QUEUE.search(evidence)):
        return ["--queue", str(finding.topic), str(finding.queue), found[1]]
    if finding.offset is None or finding.offset < 0:
        return None
    if queue:
        return ["--queue", str(finding.topic), str(finding.queue), str(finding.offset)]
    return ["--physical-offset", str(finding.offset)]


def is_below(path: str) -> bool:
    """Whether *path*, as evidence has it, is one of the store's own."""
    return not path.startswith("/") and ".." not in path.split("/")

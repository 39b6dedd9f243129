"""Hand-made outcomes for the tests of the report, and a parser that is stricter than any browser."""

from __future__ import annotations

from html.parser import HTMLParser
from types import SimpleNamespace

from spark_jobs.relations import Pair
from spark_jobs.report.model import Extent, Finding, Metric, Outcome, Report, Store

VOID = {"meta", "link", "br", "hr", "img", "input", "area", "base", "col", "embed", "source", "track", "wbr"}
MINUTE = 60_000
START = 1_794_794_160_000


def audit(name="A1", title="every record is what it says", needs=(), group="store", tables=(), earlier=""):
    """An audit that is only looked at."""
    return SimpleNamespace(
        name=name, title=title, needs=frozenset(needs), group=group, tables=tables, metrics=None, earlier=earlier
    )


ONE_STORE = (Store("broker-a", "/dumps/broker-a"),)


def report(*outcomes, stores=ONE_STORE, **settings):
    """A report of some outcomes."""
    return Report(stores=tuple(stores), outcomes=tuple(outcomes), **settings)


def full_report(text="plain"):
    """A report with everything a page can show, *text* in every place that may come from a store."""
    finding = Finding("A1", "error", text, text, 3, 4096, text, text, f"{text} physical offset 4096 {text}")
    names = ("lag", "lateness_ms", "transactions", "duplicates", "records")
    metrics = tuple(Metric("A1", text, name, text, None, 7) for name in names)
    return report(
        Outcome(audit("A1", text), (finding,), metrics, 1.5),
        Outcome(audit("A2"), seconds=0.2),
        Outcome(audit("A9"), error=text),
        Outcome(audit("A24"), missing=("against",)),
        stores=(Store(text, f"/dumps/{text}", size=5000, file_size=8192), Store("other", "/dumps/other", "against")),
        pairs=(Pair(text, "other", "unclear", text),),
        seconds=75.0,
        made_ms=START,
        extents=(
            Extent(text, "commitlog/" + "0" * 20, 0, 6000),
            Extent(text, "commitlog/" + "0" * 20, 4096, 4396, "bad_crc", text),
        ),
        traffic=(Metric("scan", text, "records", text, START, 5), Metric("scan", text, "bytes", text, START, 900)),
        facts={"records": 12, "bytes": 5000},
        command=f"python -m spark_jobs.audit {text}",
        output=f"{text}/out",
    )


class Page(HTMLParser):
    """Reads a page and notes what a browser would forgive: tags that are not closed, closed twice or crossed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.faults: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # innermost tag, text
        self.feed(text)
        self.close()
        self.faults += [f"{tag} is never closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if len(attrs) != len(dict(attrs)):
            self.faults.append(f"{tag} has an attribute twice")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"{tag} closed inside {self.open[-1] if self.open else 'nothing'}")
        else:
            self.open.pop()

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def text_of(self, tag: str) -> list[str]:
        """What stands directly in elements of that name."""
        return [text for name, text in self.texts if name == tag]

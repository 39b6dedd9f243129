"""The page's looks and its one script. Both are constants: nothing of a store is ever put into them.

The page's content policy names their digests, so a browser runs and applies these two texts and nothing else, whatever
a message's key may look like. Hence no `style=` and no `onclick=` anywhere in the page.
"""

from __future__ import annotations

import base64
import hashlib

CSS = """
:root {
  color-scheme: light dark;
  --paper: #fdfcfa; --card: #ffffff; --ink: #1e2329; --soft: #626b76; --line: #e3e1dc; --faint: #f3f1ec;
  --good: #23734a; --good-paper: #e9f4ed; --bad: #b3261e; --bad-paper: #fceceb; --warn: #8a5a00; --warn-paper: #fbf2df;
  --c0: #aab0b7; --c1: #3d6fa8; --c2: #2f978b; --c3: #c98f2d; --c4: #8b5fa6; --c5: #7d9440; --c6: #c47794;
  --written: #9db8d4; --free: #eceae5; --hurt: #d0342c;
  --mono: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15181c; --card: #1b1f24; --ink: #e4e6e9; --soft: #98a1ac; --line: #2e343b; --faint: #22272d;
    --good: #7ccb9c; --good-paper: #17271f; --bad: #f2938c; --bad-paper: #311b1a;
    --warn: #e0b45e; --warn-paper: #2c2415;
    --c0: #646c75; --c1: #6d9fd8; --c2: #4fb8ab; --c3: #d9a94f; --c4: #b08acb; --c5: #a3b966; --c6: #d996b0;
    --written: #4b6b8d; --free: #262b31; --hurt: #ff6a5f;
  }
}
* { box-sizing: border-box; }
html { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
body { margin: 0; background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%; }
main, footer { max-width: 74rem; margin: 0 auto; padding: 0 1.5rem; }
h1, h2, h3, h4, p { margin: 0; }
h2 { font-size: 1.3rem; font-weight: 650; margin: 3rem 0 .9rem; letter-spacing: -.01em; }
h3 { font-size: 1.02rem; font-weight: 650; margin-bottom: .7rem; }
h4 { font-size: .9rem; font-weight: 600; margin-top: 1.1rem; overflow-wrap: anywhere; }
code { font: .86em/1.5 var(--mono); }
a { color: inherit; }

.verdict { border-radius: 14px; padding: 1.9rem 2rem 1.7rem; margin: 2rem 0 1.2rem; border-left: 8px solid; }
.verdict.good { background: var(--good-paper); border-color: var(--good); }
.verdict.bad { background: var(--bad-paper); border-color: var(--bad); }
.verdict.warn { background: var(--warn-paper); border-color: var(--warn); }
.verdict h1 { font-size: clamp(1.7rem, 5vw, 2.6rem); line-height: 1.15; font-weight: 700; letter-spacing: -.025em;
  text-wrap: balance; }
.verdict.good h1 { color: var(--good); }
.verdict.bad h1 { color: var(--bad); }
.verdict.warn h1 { color: var(--warn); }
.verdict p { margin-top: .5rem; }
.kicker { font-size: .8rem; color: var(--soft); margin: 0 0 .5rem !important; }

.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 1px; margin: 0;
  background: var(--line); border: 1px solid var(--line); border-radius: 12px; overflow: hidden; }
.facts div { background: var(--card); padding: .8rem 1.1rem; }
.facts dt { font-size: .78rem; color: var(--soft); }
.facts dd { margin: 0; font-size: 1.22rem; font-weight: 600; font-variant-numeric: tabular-nums; }

.stores { list-style: none; padding: 0; margin: 1rem 0 0; font-size: .9rem; }
.stores li { padding: .15rem 0; overflow-wrap: anywhere; }
.soft { color: var(--soft); }

.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.2rem 1.4rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1.1rem; }
.plots .wide { grid-column: 1 / -1; }
.plots > * { min-width: 0; }

.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
table.list { background: var(--card); }
.frame { border: 1px solid var(--line); border-radius: 12px; overflow-x: auto; background: var(--card); }
.list th, .list td { text-align: left; vertical-align: top; padding: .5rem .9rem; border-top: 1px solid var(--line); }
.list thead th { border-top: 0; background: var(--faint); font-weight: 600; font-size: .8rem; color: var(--soft);
  white-space: nowrap; }
.list thead button { all: unset; cursor: pointer; }
.list thead button:hover, .list thead button:focus-visible { color: var(--ink); text-decoration: underline; }
.list thead th[aria-sort=ascending] button::after { content: " \\2191"; }
.list thead th[aria-sort=descending] button::after { content: " \\2193"; }
.list .n, .bars .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.list td.text { overflow-wrap: anywhere; min-width: 8rem; }
.list td.word { overflow-wrap: break-word; min-width: 7rem; max-width: 15rem; }
.list td.text:last-child { min-width: 15rem; }
.list td.name { font-weight: 600; white-space: nowrap; }
.list tr.not-run td { color: var(--soft); }

.chip { display: inline-block; padding: .05rem .6rem; border-radius: 99px; font-size: .82rem; font-weight: 600; }
.chip.good { color: var(--good); background: var(--good-paper); }
.chip.bad { color: var(--bad); background: var(--bad-paper); }
.chip.warn { color: var(--warn); background: var(--warn-paper); }
.chip.none { color: var(--soft); background: var(--faint); font-weight: 500; }
td .chip { border-radius: 10px; }

.found { margin-top: 1.6rem; }
.found summary { cursor: pointer; display: flex; flex-wrap: wrap; gap: .3rem .8rem; align-items: baseline;
  padding: .3rem 0 .6rem; }
.found summary h3 { margin: 0; }
.list tr.more td { border-top: 0; padding-top: 0; }
.command { display: block; padding: .3rem .55rem; background: var(--faint); border-radius: 6px;
  color: var(--soft); -webkit-user-select: all; user-select: all; cursor: copy; overflow-wrap: anywhere; }

svg { display: block; overflow: visible; }
svg.plot { width: 100%; min-width: 26rem; height: auto; }
svg.plot.wide { min-width: 46rem; }
svg text { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg.strip { width: 100%; height: 14px; border-radius: 4px; overflow: hidden; }
svg.tall { height: 30px; margin-bottom: .7rem; border-radius: 6px; }
svg.key { width: .75em; height: .75em; display: inline-block; margin-right: .5em; border-radius: 2px; }
.c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); }
.c4 { fill: var(--c4); } .c5 { fill: var(--c5); } .c6 { fill: var(--c6); }
rect.written { fill: var(--written); } rect.free { fill: var(--free); } rect.hurt { fill: var(--hurt); }
/* As wide as a line at least, however narrow the screen. */
rect.hurt { stroke: var(--hurt); stroke-width: 1.5px; vector-effect: non-scaling-stroke; }
rect:hover { filter: brightness(1.12); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.3rem; padding: 0; margin: .6rem 0 0;
  font-size: .85rem; }
.legend li { overflow-wrap: anywhere; }
.caption, .nothing { color: var(--soft); font-size: .85rem; margin-top: .5rem; }
.nothing { margin: .3rem 0; font-size: .9rem; }
.bars th { text-align: left; font-weight: 500; padding: .22rem .9rem .22rem 0; width: 1%; max-width: 15rem;
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.bars td { padding: .22rem 0; }
.bars .n { width: 1%; padding-left: .9rem; }
.bars td.hurt { color: var(--bad); font-weight: 650; }
.bars.shares th { width: auto; }
.bars.shares { width: auto; min-width: 16rem; }
.bars.map { margin-top: .5rem; }

footer { color: var(--soft); font-size: .85rem; padding-top: 2.5rem; padding-bottom: 3rem; }
footer p { margin-top: .5rem; overflow-wrap: anywhere; }

@media (max-width: 44rem) {
  main, footer { padding: 0 .9rem; }
  .verdict { padding: 1.3rem 1.2rem; margin-top: 1rem; }
  .card { padding: 1rem; }
  .cards thead { display: none; }
  .cards, .cards tbody, .cards tr, .cards td { display: block; width: 100%; }
  .cards tr { padding: .7rem 1rem; border-top: 1px solid var(--line); }
  .cards tr:first-child, .cards tr.more { border-top: 0; }
  .cards tr.more { padding-top: 0; }
  .cards tr.more td::before { display: none; }
  .cards td { border: 0; padding: .12rem 0; display: flex; gap: .7rem; text-align: left !important;
    white-space: normal !important; }
  .cards td:empty { display: none; }
  .cards td::before { content: attr(data-name); color: var(--soft); flex: 0 0 5.2rem; font-size: .85rem;
    font-weight: 400; }
  .cards td > * { min-width: 0; }
  .cards td.word { max-width: none; overflow-wrap: anywhere; }
  .checks tr { display: grid; grid-template-columns: 3rem 1fr; padding: .5rem 1rem; }
  .checks td { grid-column: 2; }
  .checks td.name { grid-column: 1; }
  .checks td::before, .checks td.n { display: none; }
  .bars th { max-width: 9rem; }
  .map th { max-width: none; }
  .map th code { font-size: .68em; }
}
@media print {
  :root {
    --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb; --faint: #f2f2f2; --good: #1b5e3b;
    --good-paper: #fff; --bad: #9d1c15; --bad-paper: #fff; --warn: #6d4700; --warn-paper: #fff;
    --written: #9db8d4; --free: #e6e6e6; --hurt: #c00;
  }
  html { font-size: 10.5px; }
  main, footer { max-width: none; padding: 0; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .verdict { border: 1px solid; border-left-width: 8px; }
  .frame, .scroll { overflow: visible; }
  tr, .card, svg { break-inside: avoid; }
  thead { display: table-row-group; }
  h2, h3, summary { break-after: avoid; }
}
"""

# Sorting: a click on a heading sorts its column, by number where cells say one (data-sort), again the other way round;
# rows of class "more" stay with the row before them. Printing opens what is folded.
SCRIPT = """
document.querySelectorAll("table.sortable").forEach(function (table) {
  var body = table.tBodies[0], heads = Array.from(table.tHead.rows[0].cells);
  function value(row, index) {
    var cell = row.cells[index], text = cell.dataset.sort;
    return text === undefined ? cell.textContent.trim() : text;
  }
  heads.forEach(function (head, index) {
    var button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.textContent = "";
    head.appendChild(button);
    button.addEventListener("click", function () {
      var down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      var rows = [];
      Array.from(body.rows).forEach(function (row) {
        if (row.className === "more") { rows[rows.length - 1].push(row); } else { rows.push([value(row, index), row]); }
      });
      var numbers = rows.every(function (pair) { return pair[0] === "" || !isNaN(pair[0]); });
      rows.sort(function (one, two) {
        if (numbers) { return (one[0] === "" ? -1 : +one[0]) - (two[0] === "" ? -1 : +two[0]); }
        return one[0].localeCompare(two[0], "en", { numeric: true });
      });
      if (down) { rows.reverse(); }
      rows.forEach(function (group) { group.slice(1).forEach(function (row) { body.appendChild(row); }); });
    });
  });
});
window.addEventListener("beforeprint", function () {
  document.querySelectorAll("details").forEach(function (one) { one.open = true; });
});
"""


def digest(text: str) -> str:
    """What a content policy calls an inline text by."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


POLICY = (
    f"default-src 'none'; style-src {digest(CSS)}; script-src {digest(SCRIPT)}; base-uri 'none'; form-action 'none'"
)

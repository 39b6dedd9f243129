"""docs/config.md is generated: it has every setting, and it is fresh."""

from __future__ import annotations

from pathlib import Path

from pymq.store.config import StoreConfig
from pymq.store.reference import main, render_reference
from pymq.store.settings import describe_settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "config.md"


def test_the_page_has_every_setting_with_its_default_and_alias():
    """Goal: nothing undocumented. Method: a row and a heading for each field."""
    page = render_reference()
    for row in describe_settings(StoreConfig):
        assert f"\n## {row.name}\n" in page
        assert f"| [`{row.name}`](#{row.name}) |" in page
        assert row.info.alias in page
        assert row.info.doc in page


def test_the_page_in_the_repository_is_fresh(capsys):
    """Goal: generated files agree with their source. Method: --check on the page, and on a changed copy."""
    assert main(["--check", str(PAGE)]) == 0
    assert main([]) == 0
    assert capsys.readouterr().out == PAGE.read_text(encoding="utf-8")


def test_a_stale_page_is_told(tmp_path, capsys):
    """Goal: the check can fail. Method: one word changed."""
    stale = tmp_path / "config.md"
    stale.write_text(render_reference().replace("Settings", "settings", 1), encoding="utf-8")
    assert main(["--check", str(stale)]) == 1
    assert "is stale" in capsys.readouterr().err

"""`porting explain` finds pages by code and by slug, and helps those who mistype."""

from __future__ import annotations

import json

import pytest

from porting.cli.main import main
from porting.diagnostics import CODES
from porting.diagnostics.codes import read_page


@pytest.mark.parametrize("name", ["L001", "l001", "loss-outside-forward"])
def test_a_page_is_found_by_its_code_and_by_its_slug(name, capsys):
    assert main(["explain", name]) == 0
    assert capsys.readouterr().out.strip() == read_page("L001").strip()


def test_an_unknown_code_is_wrong_usage_and_answered_with_the_nearest(capsys):
    assert main(["explain", "loss-outside-fwd"]) == 2

    output, errors = capsys.readouterr()
    assert output == ""
    assert "no code or slug 'loss-outside-fwd'; did you mean loss-outside-forward?" in errors


def test_where_nothing_is_near_the_list_is_pointed_to(capsys):
    assert main(["explain", "zzzzzzzzzz"]) == 2
    assert "no known code is similar\n`porting explain --list` lists all" in capsys.readouterr().err


def test_the_list_has_every_code_with_its_severity_and_slug(capsys):
    assert main(["explain", "--list"]) == 0

    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(" ")]
    assert rows == [[code.code, code.severity.value, code.slug] for code in CODES.values()]


def test_the_list_fits_a_terminal(capsys):
    main(["explain", "--list"])

    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_list_as_json_has_the_titles_too(capsys):
    main(["explain", "--list", "--format", "json"])

    assert [entry["title"] for entry in json.loads(capsys.readouterr().out)] == [c.title for c in CODES.values()]


def test_a_page_as_json_has_its_text(capsys):
    main(["explain", "C001", "--format", "json"])

    entry = json.loads(capsys.readouterr().out)
    assert (entry["slug"], entry["page"]) == ("host-read", read_page("C001"))


@pytest.mark.parametrize("words", [[], ["L001", "--list"]], ids=["nothing", "both"])
def test_a_code_or_the_list_is_needed_and_not_both(words):
    with pytest.raises(SystemExit, match="2"):
        main(["explain", *words])

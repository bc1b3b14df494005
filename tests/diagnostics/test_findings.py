"""A finding fills in what its code knows and turns into plain values."""

from __future__ import annotations

import dataclasses
import json
import linecache
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from porting.diagnostics import CODES, FORMATS, Finding, Place, Severity, render, render_all


def test_message_and_severity_default_to_those_of_the_code():
    finding = Finding("B006")

    assert (finding.message, finding.severity) == (CODES["B006"].title, Severity.WARNING)


def test_a_severity_that_is_given_wins():
    assert Finding("B006", severity=Severity.ERROR).severity is Severity.ERROR


def test_a_severity_may_be_given_by_its_name():
    assert Finding("B006", severity="note").severity is Severity.NOTE


def test_slug_and_title_come_from_the_table():
    finding = Finding("C001", "`.item()` reads a value")

    assert (finding.slug, finding.title) == ("host-read", CODES["C001"].title)


def test_a_single_note_or_help_is_one_line_not_its_letters():
    finding = Finding("L001", notes="a fact", help="an action")

    assert (finding.notes, finding.help) == (("a fact",), ("an action",))


def test_notes_in_a_list_become_a_tuple_so_that_findings_can_be_in_a_set():
    assert len({Finding("L001", notes=["a", "b"]), Finding("L001", notes=("a", "b"))}) == 1


def test_a_finding_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Finding("L001").message = "another"


def test_an_unknown_code_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown code 'L999'"):
        Finding("L999")


def test_to_dict_survives_json():
    finding = Finding("L001", place=Place("train.py", 3, 8, 3, 30), label="here", notes=["n"], help=["h"])

    assert json.loads(json.dumps(finding.to_dict())) == {
        "code": "L001",
        "slug": "loss-outside-forward",
        "severity": "error",
        "message": "the loss is computed outside `forward`",
        "place": {"file": "train.py", "line": 3, "column": 8, "end_line": 3, "end_column": 30},
        "label": "here",
        "notes": ["n"],
        "help": ["h"],
        "is_guess": False,
    }


def test_to_dict_of_a_finding_without_a_place_says_none():
    assert Finding("D001").to_dict()["place"] is None


SOURCE = """import train

loss = criterion(model(x), y)
\tloss = criterion(model(x), y)
größe = "中文", criterion(model(x), y)
e\N{COMBINING ACUTE ACCENT} = criterion(model(x), y)
    indented = True
loss = criterion(
    model(x), y)

\x1b[31mred = 1
"""


@pytest.fixture
def train(tmp_path, monkeypatch) -> str:
    """Write the source as train.py into the current folder and return its whole path."""
    (tmp_path / "train.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "train.py")


def span(text: str, line: int, file: str) -> Place:
    """Make the place of a piece of SOURCE on a line."""
    column = SOURCE.splitlines()[line - 1].index(text) + 1
    return Place(file, line, column, line, column + len(text))


def terminal_columns(text: str) -> int:
    """Count columns as a terminal does, at the most: no character takes more than two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def displayed_columns(rendered: str) -> tuple[str, str]:
    """Return the source line and its underline."""
    _head, _arrow, _gutter, source, underline, *_rest = rendered.splitlines()
    return source, underline


def test_a_finding_with_a_span_looks_as_the_style_shows(train):
    finding = Finding(
        "L001",
        place=span("criterion(model(x), y)", 3, train),
        label="a static graph only sees what `forward` does",
        help="wrap the model: `to_ipu(model, criterion)`",
    )

    assert render(finding) == (
        "error[L001]: the loss is computed outside `forward`\n"
        "  --> train.py:3:8\n"
        "   |\n"
        " 3 | loss = criterion(model(x), y)\n"
        "   |        ^^^^^^^^^^^^^^^^^^^^^^ a static graph only sees what `forward` does\n"
        "   |\n"
        "   = help: wrap the model: `to_ipu(model, criterion)`\n"
        "   = more: porting explain L001 (loss-outside-forward)"
    )


def test_the_gutter_is_as_wide_as_the_line_number(train):
    rendered = render(Finding("L001", place=span("red", 11, train)))

    assert rendered.splitlines()[1:4] == ["   --> train.py:11:6", "    |", " 11 | \N{REPLACEMENT CHARACTER}[31mred = 1"]


def test_without_columns_all_code_of_the_line_is_underlined(train):
    source, underline = displayed_columns(render(Finding("L001", place=Place(train, 7))))

    assert source == " 7 |     indented = True"
    assert underline == "   |     ^^^^^^^^^^^^^^^"


def test_a_column_without_an_end_marks_one_character(train):
    _source, underline = displayed_columns(render(Finding("L001", place=Place(train, 3, 8))))

    assert underline == "   |        ^"


def test_a_span_over_several_lines_is_underlined_to_the_end_of_its_first(train):
    _source, underline = displayed_columns(render(Finding("L001", place=Place(train, 8, 8, 9, 16))))

    assert underline == "   |        ^^^^^^^^^^"


def test_a_span_that_ends_before_it_begins_marks_one_character(train):
    _source, underline = displayed_columns(render(Finding("L001", place=Place(train, 3, 8, 3, 2))))

    assert underline == "   |        ^"


@pytest.mark.parametrize("column", [0, -1, 999])
def test_a_column_outside_the_line_underlines_the_line(train, column):
    _source, underline = displayed_columns(render(Finding("L001", place=Place(train, 3, column, 3, 1000))))

    assert underline == "   | " + "^" * len("loss = criterion(model(x), y)")


def test_a_tab_is_four_columns_in_line_and_underline(train):
    source, underline = displayed_columns(render(Finding("L001", place=span("criterion", 4, train))))

    assert source == " 4 |     loss = criterion(model(x), y)"
    assert underline == "   |            ^^^^^^^^^"


def test_a_wide_character_takes_two_columns(train):
    source, underline = displayed_columns(render(Finding("L001", place=span("criterion", 5, train))))

    assert underline.index("^") == source.index("criterion") + len("中文")


def test_a_combining_character_takes_no_column(train):
    source, underline = displayed_columns(render(Finding("L001", place=span("criterion", 6, train))))

    assert underline.index("^") == source.index("criterion") - 1


@pytest.mark.parametrize("hidden", ["\x1b", "\u202e", "\u2028", "\u200b"])
def test_characters_that_act_on_the_terminal_are_replaced(hidden):
    linecache.cache["<hidden>"] = (1, None, [f"a = '{hidden}'\n"], "<hidden>")

    assert "a = '\N{REPLACEMENT CHARACTER}'" in render(Finding("L001", place=Place("<hidden>", 1)))


@pytest.mark.parametrize(
    "place",
    [Place("missing.py", 3, 8, 3, 10), Place("train.py", 999, 8), Place("train.py", 10), Place("<string>", 1)],
    ids=["no such file", "no such line", "blank line", "not a file"],
)
def test_where_there_is_no_source_the_place_and_the_label_are_still_shown(train, place):
    lines = render(Finding("L001", place=place, label="here", notes="a fact")).splitlines()

    gutter = " " * len(str(place.line))
    assert lines[1:] == [
        f" {gutter}--> {place}",
        f" {gutter} |",
        f" {gutter} = note: here",
        f" {gutter} = note: a fact",
        f" {gutter} = more: porting explain L001 (loss-outside-forward)",
    ]


def test_a_source_that_has_changed_is_read_again(train):
    before = render(Finding("L001", place=Place(train, 1)))
    with open(train, "w", encoding="utf-8") as file:
        file.write("import something_else_altogether\n")

    after = render(Finding("L001", place=Place(train, 1)))

    assert ("import train" in before, "something_else_altogether" in after) == (True, True)


def test_a_finding_without_a_place_is_short():
    assert render(Finding("D001", notes="poptorch is not installed")) == (
        "error[D001]: no IPU was found\n"
        "   = note: poptorch is not installed\n"
        "   = more: porting explain D001 (no-ipu-found)"
    )


def test_the_lines_of_a_long_note_hang_below_each_other():
    rendered = render(Finding("D001", notes="first\nsecond"))

    assert rendered.splitlines()[1:3] == ["   = note: first", "           second"]


@pytest.mark.parametrize("severity", Severity)
def test_the_severity_stands_first(severity):
    assert render(Finding("L001", severity=severity)).startswith(f"{severity.value}[L001]: ")


def test_files_outside_the_current_folder_are_named_in_full(train, tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")

    assert f"--> {train}:3" in render(Finding("L001", place=Place(train, 3)))


@given(st.text(st.characters(exclude_characters="\r\n")), st.integers(-3, 30), st.integers(-3, 30))
def test_any_source_and_any_columns_give_an_underline_within_the_line(text, column, end_column):
    linecache.cache["<drawn>"] = (1, None, [f"start {text} end\n"], "<drawn>")

    source, underline = displayed_columns(render(Finding("L001", place=Place("<drawn>", 1, column, 1, end_column))))

    assert "^" in underline
    assert len(underline) <= len(" 1 | ") + terminal_columns(source[len(" 1 | ") :])


def test_json_is_the_dictionary_of_the_finding(train):
    finding = Finding("L001", place=Place(train, 3, 8), notes="größer")

    assert json.loads(render(finding, "json")) == finding.to_dict()


def test_github_gets_an_annotation_at_the_span(train):
    finding = Finding("L001", place=Place(train, 3, 8, 3, 30), label="here", help="wrap the model")

    assert render(finding, "github") == (
        "::error file=train.py,line=3,col=8,endLine=3,endColumn=30,title=L001 loss-outside-forward"
        "::the loss is computed outside `forward`%0Ahere%0Ahelp: wrap the model"
    )


@pytest.mark.parametrize(("severity", "command"), [("error", "error"), ("warning", "warning"), ("note", "notice")])
def test_severities_become_githubs_commands(severity, command):
    assert render(Finding("D001", severity=severity), "github").startswith(f"::{command} title=D001 no-ipu-found::")


def test_github_needs_percent_signs_line_ends_colons_and_commas_escaped():
    finding = Finding("L001", "50 %, or: less\r\nor more", place=Place("C:a,b%.py", 1))

    assert render(finding, "github") == (
        "::error file=C%3Aa%2Cb%25.py,line=1,title=L001 loss-outside-forward::50 %25, or: less%0D%0Aor more"
    )


def test_render_all_parts_texts_by_blank_lines():
    findings = [Finding("D001"), Finding("D002")]

    assert render_all(findings) == f"{render(findings[0])}\n\n{render(findings[1])}"


def test_render_all_makes_one_json_list():
    findings = [Finding("D001"), Finding("D002")]

    assert json.loads(render_all(findings, "json")) == [finding.to_dict() for finding in findings]


def test_render_all_makes_one_annotation_a_line():
    findings = [Finding("D001"), Finding("D002")]

    assert render_all(findings, "github").splitlines() == [render(finding, "github") for finding in findings]


@pytest.mark.parametrize(("format", "nothing"), [("text", ""), ("json", "[]"), ("github", "")])
def test_render_all_of_nothing(format, nothing):
    assert render_all(iter([]), format) == nothing


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=f"unknown format 'xml'; known are {', '.join(FORMATS)}"):
        render(Finding("D001"), "xml")

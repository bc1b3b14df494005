"""Copies into another memory layout are told by kind, and as a figure of a table."""

from __future__ import annotations

from porting.bench.layout_pages import tell_layout_copies, write_layout_copies


def test_a_report_says_how_many_copies_there_are_and_of_what():
    kinds = {"operators": (1, 100), "weights": (5, 2**20), "others": (8, 2**21)}
    side = {kind: {"number": number, "bytes": size, "seconds": 0.1} for kind, (number, size) in kinds.items()}
    result = {"layout_copies": {"eager": None, "ported": {**side, "number": 14, "share": 0.021}}}

    assert list(tell_layout_copies(result)) == [
        (
            "",
            "ported 14 (1 by operators, 5 of weights by oneDNN, 8 of other tensors by oneDNN), 3.0 MiB, "
            "2.1 % of a step",
        )
    ]
    assert write_layout_copies(result["layout_copies"]["ported"]) == "14 (2 %)"


def test_a_report_whose_copies_were_not_counted_says_nothing(report):
    assert list(tell_layout_copies(report.to_dict())) == []

"""The page of a port's report has what its text has."""

from __future__ import annotations

import torch
from torch import nn

from porting import to_ipu
from porting.api.run_report_page import write_run_page


def test_the_page_tells_what_ran_and_how_often():
    ported = to_ipu(nn.Linear(4, 1), nn.MSELoss(), device="sim")
    for _call in range(3):
        ported(torch.ones(2, 4), torch.ones(2, 1))

    page = write_run_page(ported.report())

    assert "<td>CPU simulator of an IPU  (no IPU took part)</td>" in page
    assert "<td>training</td>" in page
    assert '<td data-of="calls">3</td>' in page
    assert "Where the time went" in page


def test_a_notebook_shows_it():
    assert "<h2>Executors</h2>" in to_ipu(nn.Linear(4, 1), nn.MSELoss(), device="sim").report()._repr_html_()

"""Recomputation takes less memory of a whole process, not only of what tensors fill."""

from __future__ import annotations

import json
import sys

import pytest

from porting.bench.order_memory import ORDERS, WORKLOADS, load, main, measure_peaks

# of these each process has 12 MiB a layer: enough to stand out from what torch itself takes
ROWS = 12_288


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_trained_in_the_order_asked_for(name):
    workload = load(name, "chen", rows=2)

    assert workload.options.computation_order == "chen"
    assert workload.rows == 2


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is another one")
def test_recomputation_takes_three_quarters_of_the_memory_at_most():
    peaks = {peak.order: peak.ratio for peak in measure_peaks("linear24", ORDERS, rows=ROWS)}

    assert all(peaks[order] <= 0.75 for order in ("chen", "gttime", "gtmem"))
    assert peaks["dummy2"] <= 1.0


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is another one")
@pytest.mark.parametrize("name", ["gpt", "uresnet2d"])
def test_no_order_takes_more_than_none(name):
    assert max(peak.ratio for peak in measure_peaks(name, ["chen", "gtmem"])) <= 1.0


@pytest.mark.slow
def test_a_row_is_printed_for_each_process(tmp_path, capsys):
    file = tmp_path / "peaks.json"

    status = main(["linear24", "--orders", "chen", "--rows", "64", "--json", str(file)])

    rows = json.loads(file.read_text())
    assert status == 0
    assert [(row["workload"], row["order"]) for row in rows] == [("linear24", "none"), ("linear24", "chen")]
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["linear24", "none"],
        ["linear24", "chen"],
    ]


def test_a_workload_that_there_is_not_is_wrong_usage(capsys):
    with pytest.raises(SystemExit):
        main(["linear25"])

    assert "linear24" in capsys.readouterr().err

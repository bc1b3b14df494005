"""The page of a plan tells what the plan does, and can be read and used at any width."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

pytest.importorskip("jinja2")

from porting import memory_report
from porting.planning.loader_rate import LoaderRate
from porting.planning.plan_page import write_plan_page
from tests.planning.gpt_ports import ported_gpt

STAGES = {"blocks.1": 1, "blocks.3": 2, "head": 0}


def plan_for(target):
    ported, batch = ported_gpt(batch=32, width=256, length=256, vocabulary=4096, accumulation=7, stages=STAGES)
    return memory_report(ported, batch, target=target)


@pytest.fixture(scope="module")
def plan():
    return plan_for("gc2")


def test_the_page_names_what_each_ipu_holds_and_where_stages_begin(plan):
    page = unescape(write_plan_page(plan, "train.py:make"))

    assert "<h1>Plan of train.py:make</h1>" in page
    assert f'title="IPU 1, weights: {plan.ipus[1].weight_bytes / 2**20:,.0f} MiB"' in page
    assert all(f"<td>{name}</td>" in page for name in STAGES)


def test_remedies_are_shown_as_code_without_backticks(plan):
    page = write_plan_page(plan, "train.py:make")

    assert plan.remedies
    assert "<code>precision=&quot;float16&quot;</code>" in page.replace('"float16"', "&quot;float16&quot;")
    assert "`" not in page


def test_each_row_is_one_stop_of_the_tab_key(plan):
    page = write_plan_page(plan, "train.py:make")

    # bars of memory and of modules for each of 3 IPUs, memory over time, and a row for each of 4 stages
    assert len(re.findall(r'<i role="img" tabindex="0"', page)) == 3 + 3 + 1 + 4


def test_memory_over_time_and_the_places_of_modules_have_their_numbers(plan):
    page = unescape(write_plan_page(plan, "train.py:make"))

    assert re.search(r'title="backward, blocks\.\d.*: [\d,]+ MiB, of which [\d,]+ MiB are always there"', page)
    assert re.search(r'title="IPU 1, blocks\.1.*: \d+\.\d% of its time, \d+ MiB of weights, \d+ operators"', page)
    assert re.search(
        r"stage 0, round 7: micro-batch 7 forward, micro-batch 1 backward; it holds \d micro-batches", page
    )


def test_the_time_to_train_is_told_with_its_interval():
    plan = plan_for("bow")
    page = unescape(write_plan_page(plan, "train.py:make", num_samples=1e6))
    low, middle, high = (plan.forecast.count_hours(1e6, share) for share in (0.05, 0.5, 0.95))

    assert "Time to train 1,000,000 samples" in page
    assert f"{middle:,.1f} hours; 9 of 10 such trainings take {low:,.1f} to {high:,.1f}" in page
    assert "Time to train" not in write_plan_page(plan, "train.py:make")


def test_what_the_loader_gave_is_told(plan):
    rate = LoaderRate(samples_per_second=1234.0, low=1100.0, high=1350.0, num_batches=14, seconds=1.0)

    assert "the loader gives 1,234 samples a second" in write_plan_page(plan, "train.py:make", loader=rate)


def test_what_does_not_fit_has_no_speed(plan):
    page = unescape(write_plan_page(plan, "train.py:make", num_samples=1e6))

    assert plan.verdict == "does not fit"
    assert "with these options it fits on" in page
    assert not any(f"<h2>{title}" in page for title in ("Speed", "Time to train"))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("PyQt6") is None, reason="there is no browser")
@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_in_a_browser_and_arrows_go_from_part_to_part(plan, width, scheme, tmp_path):
    path = tmp_path / "plan.html"
    path.write_text(write_plan_page(plan, "train.py:make", num_samples=1e9), encoding="utf-8")
    program = Path(__file__).with_name("page_in_browser.py")

    done = subprocess.run(
        [sys.executable, program, path, str(width), scheme], check=True, stdout=subprocess.PIPE, timeout=120
    )

    found = json.loads(done.stdout)
    assert (found["wide"], found["messages"], found["dark"]) == ([], [], scheme == "dark")
    assert [found["first"], found["second"]] == found["titles"]


def test_a_notebook_shows_a_plan_as_its_page(plan):
    assert "Memory of each IPU" in plan._repr_html_()

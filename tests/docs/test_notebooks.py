"""The notebook of docs runs from its first cell to its last, and shows what it speaks of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "first-port.ipynb"


def test_a_notebook_is_kept_without_outputs():
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]

    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run the notebook; without the extra `notebook` there is nothing to run it."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    environment = {**os.environ, "PORTING_DEVICE": "sim", "PYTHONPATH": str(ROOT)}
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    client.execute(env=environment)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown_by(cells, text):
    """Return what the last line of the cell with this text has shown, by kind."""
    (cell,) = [cell for cell in cells if text in cell.source]
    return {kind: content for output in cell.outputs for kind, content in output.get("data", {}).items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("text", "said"),
    [("porting.verify(", "PASS"), ("ported.report()", "Executors"), ("porting.plan(", "Memory of each IPU")],
)
def test_reports_are_shown_as_pages(ran, text, said):
    assert said in shown_by(ran, text)["text/html"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_error_shows_its_finding_first_with_the_name_of_the_cell(ran):
    (error,) = [output for cell in ran for output in cell.outputs if output.output_type == "error"]

    assert error.traceback[0].startswith("error[B001]")
    assert "--> cell In[6]:1:1" in error.traceback[0]
    assert len("\n".join(error.traceback).splitlines()) < 20

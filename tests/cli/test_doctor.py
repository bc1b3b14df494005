"""`porting doctor` prints the examination and tells by its status whether something has to be put right."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from porting.cli.main import main
from porting.diagnostics import Finding
from porting.doctor import examination
from porting.doctor.examination import Examination
from porting.doctor.probes import Probe


@pytest.fixture
def examined(monkeypatch):
    """Return the way to say what is found on this machine."""

    def give(*codes):
        probes = tuple(Probe("part", "something", "else", Finding(code)) for code in codes)
        found = Examination(probes, (("training on IPUs", False, "no PopTorch"),), "Linux")
        monkeypatch.setattr(examination, "examine_machine", lambda: found)
        return found

    return give


@pytest.mark.parametrize(("codes", "status"), [((), 0), (("D002",), 0), (("X016",), 1), (("X011", "D002"), 1)])
def test_the_status_tells_whether_something_has_to_be_put_right(examined, codes, status, capsys):
    found = examined(*codes)

    assert main(["doctor"]) == status
    assert capsys.readouterr().out == f"{found}\n"


def test_json_is_the_redacted_examination(examined, capsys):
    found = examined("X016")

    main(["doctor", "--format", "json"])

    assert json.loads(capsys.readouterr().out) == found.to_dict()


def test_a_workflow_gets_annotations_and_the_verdict(examined, capsys):
    found = examined("X016")

    main(["doctor", "--format", "github"])

    assert capsys.readouterr().out.splitlines()[0].startswith("::warning title=X016 little-room::")
    assert (
        found.verdict
        == "ready for work without IPUs, with something to put right: 1 things looked at, 1 warning; "
        + ("begin with X016: the disk of the cache has little room left")
    )


def test_no_library_is_loaded_into_the_command(tmp_path):
    program = (
        "import sys\nfrom porting.cli.main import main\nmain(['doctor'])\n"
        "print(*({'torch', 'numpy', 'poptorch'} & set(sys.modules)), file=sys.stderr)"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)

    assert result.stderr == "\n"
    assert "things looked at" in result.stdout.splitlines()[-1]

"""Each mechanical fix changes what a finding points at and nothing else, and what it writes can be read."""

from __future__ import annotations

import textwrap

import pytest

from porting.diagnostics import Finding, Place, PortingError

pytest.importorskip("libcst", reason="needs the extra `fix`")

from porting.source.patches.edits import EDITS
from porting.source.patches.fixes import list_unproven, propose_fixes, write_fixes


class _EveryFile:
    def __contains__(self, _file):
        return True


EVERYWHERE = _EveryFile()

NET = "net = Net()\nclass Net:\n    def forward(self, x):\n"

CASES = {
    # code: (program, the text that is found, the program afterwards)
    "B022": (
        "x = 1\nbatch['a'] == batch['a'].contiguous()  # order\n",
        "batch['a'] ==",
        "x = 1\nbatch['a'] = batch['a'].contiguous()  # order\n",
    ),
    "C004": (
        "def forward(self, x):\n    return self.a(x.cpu())\n",
        "x.cpu()",
        "def forward(self, x):\n    return self.a(x)\n",
    ),
    "C010": ("def forward(self, x):\n    print(x)\n", "print(x)", "def forward(self, x):\n    pass\n"),
    "C011": (
        "def forward(self, x):\n    return x.sum(1) + torch.zeros(3, )\n",
        "torch.zeros",
        "def forward(self, x):\n    return x.sum(1) + torch.zeros(3, device=x.device)\n",
    ),
    "C026": (f"{NET}        x *= 2 + y\n", "x *=", f"{NET}        x = x * (2 + y)\n"),
    "D003": (
        "model = to_ipu(m)\nmodel = model.to(device)\nrun(model.to(d))\n",
        "model.to(device)",
        "model = to_ipu(m)\nrun(model.to(d))\n",
    ),
    "D010": (
        "import torch\n\n# the vendor's\nimport poptorch as pt  # noqa\n",
        "import poptorch",
        "import torch\n\n# the vendor's\ntry:\n    import poptorch as pt  # noqa\n"
        "except ImportError:\n    import porting.simulator as pt\n",
    ),
    "K006": ("torch.save(port, path)\n", "torch.save", "torch.save(port.state_dict(), path)\n"),
    "L010": (
        "for x in xs:\n    loss = f(x); loss.backward(); n += 1\n",
        "loss.backward()",
        "for x in xs:\n    loss = f(x); n += 1\n",
    ),
    "O007": ("if ready: optimizer.step()\nelse:\n    y()\n", "optimizer.step()", "if ready: pass\nelse:\n    y()\n"),
    "O008": ("for x in xs:\n\toptimizer.zero_grad()\n\tf(x)\n", "optimizer.zero_grad()", "for x in xs:\n\tf(x)\n"),
    "O010": ("scaler.scale(loss).backward()\r\nprint(1)\r\n", "scaler.scale(loss).backward()", "print(1)\r\n"),
    "O016": (
        "with model.no_sync():\n    # first\n    a()\n    b()\nc()\n",
        "model.no_sync()",
        "# first\na()\nb()\nc()\n",
    ),
}


def _find(path, code, text):
    before, separator, _ = path.read_bytes().decode().partition(text)
    assert separator
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return Finding(code, place=Place(str(path), line, column, line, column + len(text)))


def test_every_fix_has_a_case():
    assert set(CASES) == set(EDITS)


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_fix_changes_what_is_found_and_nothing_else(tmp_path, code):
    program, found, expected = CASES[code]
    path = tmp_path / "train.py"
    path.write_bytes(program.encode())

    (fix,) = propose_fixes([_find(path, code, found)], ported_files=EVERYWHERE)

    assert fix.after.decode() == expected
    assert [finding.code for finding in fix.fixed] == [code]
    assert path.read_bytes() == program.encode()


def test_a_plain_program_keeps_what_only_a_port_does_without(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("loss.backward()\n")

    assert propose_fixes([_find(path, "L010", "loss.backward()")], ported_files=()) == []


@pytest.mark.parametrize("code", ["D015", "L001"])
def test_a_loop_that_still_trains_on_the_host_keeps_its_step(tmp_path, code):
    path = tmp_path / "train.py"
    path.write_text("loss = criterion(model(x), y)\nloss.backward()\n")
    found = [_find(path, code, "criterion(model(x), y)"), _find(path, "L010", "loss.backward()")]

    assert propose_fixes(found, ported_files=EVERYWHERE) == []


def test_a_step_stays_where_a_backward_pass_stays(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("def f(loss):\n    loss.backward()\n\ndef g():\n    optimizer.zero_grad()\n    optimizer.step()\n")
    found = [_find(path, "O008", "optimizer.zero_grad()"), _find(path, "O007", "optimizer.step()")]

    assert propose_fixes(found, ported_files=EVERYWHERE) == []


@pytest.mark.parametrize(
    "program",
    [
        "with pytest.raises(RuntimeError):\n    loss.backward()\n",
        "with self.assertRaises(RuntimeError):\n    loss.backward()\n",
        "try:\n    loss.backward()\nexcept RuntimeError:\n    print('as said')\n",
    ],
)
def test_what_is_tried_out_stays(tmp_path, program):
    path = tmp_path / "train.py"
    path.write_text(program)

    assert propose_fixes([_find(path, "L010", "loss.backward()")], ported_files=EVERYWHERE) == []


def test_a_result_that_is_used_stays(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("found = scaler.step(optimizer)\n")

    assert propose_fixes([_find(path, "O010", "scaler.step(optimizer)")], ported_files=EVERYWHERE) == []


@pytest.mark.parametrize(
    ("code", "program", "found"),
    [
        ("L010", "run(lambda: loss.backward())\n", "loss.backward()"),
        ("O008", "[p.grad.zero_() for p in ps]\n", "p.grad.zero_()"),
        ("O010", "scaler, n = GradScaler(), 1\n", "GradScaler()"),
        ("O010", "scaler = GradScaler()\nsave(scaler.state_dict())\n", "GradScaler()"),
        ("O016", "with model.no_sync() as context:\n    a()\n", "model.no_sync()"),
        ("O016", "with model.no_sync(), other():\n    a()\n", "model.no_sync()"),
        ("C011", "def forward(self, batch):\n    return batch['x'] + torch.zeros(3)\n", "torch.zeros(3)"),
        ("C011", "def forward(self, n):\n    return self.w[n - 1] + torch.zeros(3)\n", "torch.zeros(3)"),
        ("C011", "def forward(self, x=None):\n    return x.sum() + torch.zeros(3)\n", "torch.zeros(3)"),
        ("C026", f"{NET}        x.bernoulli_(0.5)\n", "x.bernoulli_(0.5)"),
        ("C026", f"{NET}        x[0] += 1\n", "x[0] += 1"),
        ("D003", "model = wrap(port, 3)\n", "wrap(port, 3)"),
        ("D003", "model = DataParallel(*ports)\n", "DataParallel(*ports)"),
        ("D010", "import os, poptorch\n", "import os"),
        ("K006", "torch.save({'port': port}, file)\n", "torch.save({'port': port}, file)"),
    ],
)
def test_what_would_be_a_guess_is_left_as_it_is(tmp_path, code, program, found):
    path = tmp_path / "train.py"
    path.write_text(program)

    assert propose_fixes([_find(path, code, found)], ported_files=EVERYWHERE) == []


def test_a_scaler_goes_with_the_last_line_that_reads_it(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("self.scaler = GradScaler()\nrun()\nself.scaler.update()\n")
    found = [_find(path, "O010", text) for text in ("GradScaler()", "self.scaler.update()")]

    (fix,) = propose_fixes(found, ported_files=EVERYWHERE)

    assert fix.after == b"run()\n"
    assert set(fix.fixed) == set(found)


@pytest.mark.parametrize("wrapper", ["torch.compile(port)", "nn.parallel.DistributedDataParallel(port, [0])"])
def test_a_wrapper_around_a_port_is_left_out(tmp_path, wrapper):
    path = tmp_path / "train.py"
    path.write_text(f"model = {wrapper}\n")

    (fix,) = propose_fixes([_find(path, "D003", wrapper)], ported_files=EVERYWHERE)

    assert fix.after == b"model = port\n"


def test_no_comment_and_no_blank_line_is_lost(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        "for x in xs:\n    # first\n\n    optimizer.zero_grad()  # clear\n    run(x)\n\n    # then\n"
        "    loss.backward()\n    # last\nwith port.no_sync():  # alone\n    a()\n    # end\n"
    )
    codes = {"O008": "optimizer.zero_grad()", "L010": "loss.backward()", "O016": "port.no_sync()"}

    (fix,) = propose_fixes([_find(path, *item) for item in codes.items()], ported_files=EVERYWHERE)

    assert fix.after.decode() == (
        "for x in xs:\n    # first\n\n    # clear\n    run(x)\n\n    # then\n    # last\n# alone\na()\n# end\n"
    )


def test_what_is_not_proven_is_only_listed(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("def forward(self, x):\n    print(x)\n    return np.sort(x.cpu())\n")
    found = [_find(path, "C010", "print(x)"), _find(path, "C004", "x.cpu()")]

    fixes = propose_fixes(found, ported_files=EVERYWHERE)
    (shown,) = list_unproven(found, fixes, ported_files=EVERYWHERE)

    assert [fix.after for fix in fixes] == [b"def forward(self, x):\n    return np.sort(x.cpu())\n"]
    assert shown.before == fixes[0].after
    assert shown.after == b"def forward(self, x):\n    return np.sort(x)\n"
    assert [finding.code for finding in shown.fixed] == ["C004"]


def test_several_fixes_of_a_file_are_one_change(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("for x in xs:\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n")
    codes = {"O008": "optimizer.zero_grad()", "L010": "loss.backward()", "O007": "optimizer.step()"}

    (fix,) = propose_fixes([_find(path, *item) for item in codes.items()], ported_files=EVERYWHERE)

    assert fix.after == b"for x in xs:\n    pass\n"
    assert len(fix.fixed) == 3


def test_the_diff_is_one_that_patch_takes(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("x = 1\nloss.backward()")

    (fix,) = propose_fixes([_find(path, "L010", "loss.backward()")], ported_files=EVERYWHERE)

    assert fix.diff == textwrap.dedent(f"""\
        --- {path}
        +++ {path}
        @@ -1,2 +1 @@
        -x = 1
        -loss.backward()
        \\ No newline at end of file
        +x = 1
        \\ No newline at end of file
        """)


def test_an_encoding_is_kept(tmp_path):
    path = tmp_path / "train.py"
    path.write_bytes("# -*- coding: latin-1 -*-\nname = 'Zoë'\nloss.backward()\n".encode("latin-1"))
    finding = Finding("L010", place=Place(str(path), 3, 1, 3, 16))

    (fix,) = propose_fixes([finding], ported_files=EVERYWHERE)

    assert fix.after == "# -*- coding: latin-1 -*-\nname = 'Zoë'\n".encode("latin-1")


def test_a_file_that_has_changed_since_is_not_written(tmp_path):
    paths = [tmp_path / name for name in ("a.py", "b.py")]
    for path in paths:
        path.write_text("loss.backward()\nx = 1\n")
    fixes = propose_fixes([_find(path, "L010", "loss.backward()") for path in paths], ported_files=EVERYWHERE)
    paths[1].write_text("loss.backward()\ny = 2\n")

    with pytest.raises(PortingError, match="has changed while it was checked"):
        write_fixes(fixes)

    assert paths[0].read_text() == "loss.backward()\nx = 1\n"


def test_fixes_are_written_through_links(tmp_path):
    path, link = tmp_path / "train.py", tmp_path / "link.py"
    path.write_text("loss.backward()\nx = 1\n")
    link.symlink_to(path)

    write_fixes(propose_fixes([_find(link, "L010", "loss.backward()")], ported_files=EVERYWHERE))

    assert link.is_symlink()
    assert path.read_text() == "x = 1\n"


@pytest.mark.parametrize("content", [b"def broken(:\n", b"\xff\xfe\x00", b"print 'two'\n"])
def test_what_cannot_be_read_is_passed_over(tmp_path, content):
    path = tmp_path / "train.py"
    path.write_bytes(content)

    assert propose_fixes([Finding("L010", place=Place(str(path), 1))], ported_files=EVERYWHERE) == []


def test_a_call_of_several_lines_is_closed_where_it_was(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("def forward(self, x):\n    y = torch.tensor(\n        self.t\n    )\n    return x.float() * y\n")

    (fix,) = propose_fixes([_find(path, "C011", "torch.tensor(")], ported_files=())

    expected = "def forward(self, x):\n    y = torch.tensor(\n        self.t,\n        device=x.device\n    )\n"
    assert fix.after.decode() == expected + "    return x.float() * y\n"

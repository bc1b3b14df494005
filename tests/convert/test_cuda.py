"""A program for GPUs runs without one after its conversion, and what it guards itself stays as it is."""

from __future__ import annotations

import pytest

from tests.convert.conversions import LOOP, convert_text

_ON_GPU = 'if torch.cuda.is_available() else "cpu"'


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("net = nn.Linear(4, 2).cuda()", f'net = nn.Linear(4, 2).to("cuda" {_ON_GPU})'),
        ("device = 'cuda:0'", f"device = 'cuda:0' {_ON_GPU}"),
        ("device = torch.device('cuda')", f"device = torch.device('cuda' {_ON_GPU})"),
        ("z = torch.randn(2).to('cuda').cuda()", None),
        ("torch.cuda.synchronize()", "if torch.cuda.is_available():\n    torch.cuda.synchronize()"),
        (
            "kind = torch.cuda.FloatTensor",
            "kind = (torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor)",
        ),
    ],
)
def test_what_only_a_gpu_can_do_is_asked_for_a_gpu_first(tmp_path, written, becomes):
    text, _made = convert_text(tmp_path, LOOP + written + "\n")
    assert becomes is None or becomes in text
    assert f"\n{written}\n" not in text


@pytest.mark.parametrize(
    "written",
    [
        "if torch.cuda.is_available():\n    z = torch.randn(2).cuda()",
        "use_gpu = False\nif use_gpu:\n    z = torch.randn(2).to('cuda')",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "name = 'cuda' == 'cpu'",
    ],
)
def test_what_the_program_guards_itself_stays(tmp_path, written):
    text, _made = convert_text(tmp_path, LOOP + written + "\n")
    assert written in text


def test_a_port_needs_no_wrapper(tmp_path):
    wrapped = LOOP.replace("optimizer =", "model = nn.DataParallel(model)\noptimizer =", 1)
    text, _made = convert_text(tmp_path, wrapped)
    assert 'model = model if "PORT_DEVICE" in os.environ else nn.DataParallel(model)' in text


_DISTRIBUTED = """\
import os
from torch.distributed import init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["LOCAL_RANK"])
init_process_group("nccl")
"""


def test_a_port_of_several_processes_is_one_process_without_a_wrapper(tmp_path):
    own = "model = DDP(model.to(rank), device_ids=[rank])\noptimizer ="
    loop = LOOP.replace("optimizer =", own, 1) + "torch.save(model.module.state_dict(), 'net.pt')\n"
    text, made = convert_text(tmp_path, _DISTRIBUTED + loop)

    words = (
        'os.environ.setdefault("WORLD_SIZE", "1")',
        'init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        'model = model.to(rank if torch.cuda.is_available() else "cpu") if "PORT_DEVICE" in os.environ else DDP(',
        '(model if "PORT_DEVICE" in os.environ else model.module).state_dict()',
    )
    assert [word for word in words if word not in text] == []
    assert not made.left
    assert "one process" in made.notes[0]


def test_what_is_told_of_processes_is_told_before_the_program_asks(tmp_path):
    text, _made = convert_text(tmp_path, _DISTRIBUTED + LOOP)
    assert text.index('setdefault("LOCAL_RANK"') < text.index('os.environ["LOCAL_RANK"]')


def test_an_override_of_cuda_stays_as_it_is(tmp_path):
    override = "class Net(nn.Module):\n    def cuda(self):\n        return nn.Module.cuda(self)\n"
    text, _made = convert_text(tmp_path, LOOP.replace("model = nn", f"{override}\nmodel = nn"))
    assert override in text


def test_a_model_that_is_compiled_or_wrapped_is_a_port_without_that(tmp_path):
    program = LOOP.replace("model = nn.Linear(4, 2)", "model = nn.DataParallel(torch.jit.script(nn.Linear(4, 2)))")
    text, _made = convert_text(tmp_path, program + "torch.save(model.module.state_dict(), 'weights.pt')\n")

    assert 'nn.Linear(4, 2) if "PORT_DEVICE" in os.environ else torch.jit.script(nn.Linear(4, 2))' in text
    assert "torch.save((model if \"PORT_DEVICE\" in os.environ else model.module).state_dict(), 'weights.pt')" in text

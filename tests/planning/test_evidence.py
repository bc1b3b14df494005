"""Plans of published configurations: what fits is not refused, what does not is, and measured bytes are met.

The facts lie beside this package, and their models are those of `transformers`; without either there is nothing to
compare. `pytest tests/planning/test_evidence.py -s` prints the table.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, List, NamedTuple

import pytest

pytest.importorskip("transformers")

from porting.planning.plan_record import Plan
from tests.planning.evidence_models import SPECIFICATION, is_buildable, plan_row, read_evidence

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SPECIFICATION.is_dir(), reason="the published facts are not there"),
    pytest.mark.filterwarnings("ignore"),
]

FITTING, REFUSED = 0.95, 0.9
# of the fullest IPU of a profile
MEASURED_ERROR = 0.12
SPEED_ERROR, SPEEDS_MET = 0.15, 13

LARGE = {"arch": "bert", "hidden": 1024, "layers": 24, "heads": 16, "ffn": 4096, "vocab": 30522}
BASE = {"arch": "bert", "hidden": 768, "layers": 12, "heads": 12, "ffn": 3072, "vocab": 30522}
TINY = {"arch": "bert", "hidden": 64, "layers": 3, "heads": 2, "ffn": 256, "vocab": 30522, "seq": 128, "task": "QA"}
MT5 = {"arch": "mt5", "hidden": 512, "layers": 8, "heads": 6, "d_ff": 1024, "vocab": 250112, "seq": 128}
RESNET = {"arch": "resnet50", "image": 224}
VIT = {"arch": "vit", "hidden": 768, "layers": 12, "heads": 12, "ffn": 3072, "image": 224, "patch": 16}
GPT2 = {"arch": "gpt2", "hidden": 768, "layers": 12, "heads": 12, "vocab": 50257, "seq": 1024}


class Planned(NamedTuple):
    """A published configuration and its plan."""

    row: Dict[str, Any]
    plan: Plan

    @property
    def fits(self) -> bool:
        """Whether the plan does not refuse it."""
        return self.plan.verdict != "does not fit"


def show(line: str) -> None:
    """Print a line of the table, which pytest shows with `-s`."""
    sys.stdout.write(f"{line}\n")


def row_of(model, kind="training", *, layers=None, **facts):
    row = {"id": "", "framework": "poptorch", "kind": kind, "model": model, "accum_dtype": "fp16", "m_dtype": "fp32"}
    row.update({"recompute": True} if kind == "training" and facts.get("grad_accum", 2) > 1 else {})
    if layers:
        row.update(layers_per_ipu=layers, optimizer_state_offchip=True, replicated_tensor_sharding=True)
    return {**row, **facts}


@pytest.fixture(scope="module")
def planned() -> List[Planned]:
    facts = read_evidence("fit-evidence")
    rows = [row for row in (*facts["positives"], *facts["negatives"]) if "arch" in row["model"] and is_buildable(row)]
    found = [Planned(row, plan_row(row)) for row in rows]
    for row, plan in found:
        show(f"{row['id']:44} {row['outcome']:5} {plan.share:5.2f} {plan.probability:5.2f} {plan.verdict}")
    return found


def test_what_was_released_is_not_refused(planned):
    released = [one for one in planned if one.row["outcome"] == "fits"]

    assert len(released) >= 50
    assert sum(one.fits for one in released) >= FITTING * len(released)


def test_what_ran_out_of_memory_is_not_said_to_fit(planned):
    failed = [one for one in planned if one.row["outcome"] == "oom"]

    assert len(failed) >= 6
    assert sum(one.plan.verdict != "fits" for one in failed) >= REFUSED * len(failed)


MEASURED = {
    # one IPU: variables, vertices and exchange of the whole, control code of both halves
    "bertL-infer-1ipu": (
        row_of({**LARGE, "seq": 128, "task": "SQUAD"}, "inference"),
        lambda facts: sum(facts["whole"].values()) + sum(half["control_code"] for half in facts["halves"]),
    ),
    "tinybert-train-1ipu": (row_of(TINY, grad_accum=1), lambda facts: facts["total"]),
    "mt5-small-train-oom": (
        row_of(MT5, layers=[4, 4, 4, 4], checkpoint_every_layer=True),
        lambda facts: max(facts["MiB_per_ipu"]) * 2**20,
    ),
}


@pytest.mark.parametrize("name", MEASURED)
def test_measured_bytes_of_the_fullest_ipu_are_met(name):
    (facts,) = (facts for facts in read_evidence("fit-evidence")["measured"] if facts["id"] == name)
    row, measure = MEASURED[name]

    plan = plan_row(row)

    show(f"{name:24} {plan.bytes_per_ipu / measure(facts):.3f} of what was measured")
    assert plan.bytes_per_ipu == pytest.approx(measure(facts), rel=MEASURED_ERROR)


class Speed(NamedTuple):
    """A published speed: its rows by model, task, chip and number of IPUs, and the configuration that it is of.

    `items` are what one row of a batch counts for there.
    """

    source: tuple
    machine: str
    row: Dict[str, Any]
    items: float = 1.0

    @property
    def published(self) -> float:
        """The mean of the published rows, in rows of a batch a second."""
        model, task, chip, ipus = self.source
        rows = [
            row["value"]
            for row in read_evidence("throughput-evidence")["rows"]
            if row["model"] == model and row["task"].startswith(task) and row["hardware"] == chip
            if row["ipus"] == ipus and ("packed" in row["task"]) == (self.items > 1)
        ]
        return sum(rows) / len(rows) / self.items


def bert(model, length, masked, batch, layers, accumulation, **facts):
    model = {**model, "seq": length, "mask_tokens": masked}
    return row_of(model, layers=layers, micro_batch=batch, grad_accum=accumulation, **facts)


def resnet(batch, accumulation):
    return row_of(RESNET, micro_batch=batch, grad_accum=accumulation, ipus_per_replica=1, optimizer="sgd")


def speeds():
    fours, later = [3, 7, 7, 7], [0, 4, 4, 4]
    answers = row_of({**LARGE, "seq": 384, "task": "QA"}, layers=fours, micro_batch=2, grad_accum=32)
    pictures = row_of(VIT, layers=[3, 3, 3, 3], micro_batch=17, grad_accum=240)
    texts = row_of(GPT2, layers=later, micro_batch=1, grad_accum=2048)
    first, second = "Ph1 SL128", "Ph2 SL512"
    return [
        Speed(("BERT-Large", first, "Bow", 16), "bow-pod16", bert(LARGE, 128, 20, 8, fours, 512)),
        Speed(("BERT-Large", first, "Bow", 64), "bow-pod64", bert(LARGE, 128, 20, 8, fours, 128)),
        Speed(("BERT-Large", "MLPerf", "GC200", 16), "pod16", bert(LARGE, 512, 76, 2, fours, 192), items=2),
        Speed(("BERT-Large", second, "Bow", 16), "bow-pod16", bert(LARGE, 512, 76, 2, fours, 256), items=2),
        Speed(("BERT-Large", "fine-tune SQuAD", "Bow", 16), "bow-pod16", answers),
        Speed(("BERT-Base", first, "Bow", 16), "bow-pod16", bert(BASE, 128, 20, 32, later, 512)),
        Speed(("BERT-Base", second, "Bow", 16), "bow-pod16", bert(BASE, 512, 76, 8, later, 512)),
        Speed(("BERT-Base", "Ph2 SL384", "Bow", 16), "bow-pod16", bert(BASE, 384, 56, 8, later, 512)),
        Speed(("ResNet-50", "MLPerf", "GC200", 16), "pod16", resnet(20, 10)),
        Speed(("ResNet-50 v1.5", "ImageNet", "Bow", 16), "bow-pod16", resnet(20, 6)),
        Speed(("ResNet-50 v1.5", "ImageNet", "Bow", 64), "bow-pod64", resnet(20, 2)),
        Speed(("ResNet-50 v1.5", "ImageNet", "Bow", 256), "bow-pod256", resnet(20, 2)),
        Speed(("ResNet-50", "ImageNet", "Bow", 4), "bow-pod4", resnet(18, 228)),
        Speed(("ViT-B/16", "ImageNet", "Bow", 64), "bow-pod64", pictures),
        Speed(("GPT2-small", "generated", "Bow", 16), "bow-pod16", texts),
    ]


def test_published_speeds_are_met():
    ratios = []
    for speed in speeds():
        row = {**speed.row, "replication": speed.source[3] // len(speed.row.get("layers_per_ipu", [0]))}
        ratios.append(plan_row(row, speed.machine).forecast.samples_per_second / speed.published)
        show(f"{speed.source[0]:16} {speed.source[1]:16} {speed.machine:12} {ratios[-1]:.2f} of what was published")

    assert sum(abs(ratio - 1) <= SPEED_ERROR for ratio in ratios) >= SPEEDS_MET

"""Plans of models on machines: verdicts, stages, and what they leave as it was."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import porting
from porting import PortingError, PortOptions
from porting.models import gpt

TOKENS = torch.zeros(2, 64, dtype=torch.int64)


class Stack(nn.Module):
    """Equal layers and an output."""

    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _number in range(layers))
        self.output = nn.Linear(width, 4)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.output(x)


def plan_stack(width=64, layers=6, *, rows=2, on="meta", **how):
    with torch.device(on):
        model = Stack(width, layers)
    batch = torch.zeros(rows, width), torch.zeros(rows, dtype=torch.int64)
    options = how.pop("options", PortOptions(micro_batch=rows))
    return porting.plan(model, nn.CrossEntropyLoss(), batch, torch.optim.Adam(model.parameters()), options, **how)


def plan_gpt(**how):
    with torch.device("meta"):
        model = gpt.build("small", num_layers=4, width=512, num_heads=8, length=64, vocabulary=8000)
    return porting.plan(
        model, gpt.loss, (TOKENS, TOKENS), torch.optim.AdamW(model.parameters()), PortOptions(micro_batch=2), **how
    )


def code_of(call):
    with pytest.raises(PortingError) as caught:
        call()
    return caught.value.code


def test_a_small_model_fits_on_one_ipu_and_is_replicated_on_the_rest():
    planned = plan_stack(machine="bow-pod16")

    assert (planned.verdict, planned.stages, planned.forecast.replicas) == ("fits", {}, 16)
    assert planned.probability > 0.99


def test_a_plan_changes_neither_the_model_nor_its_optimizer():
    model = Stack(600, 2)
    optimizer = torch.optim.Adam(model.parameters())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = torch.zeros(2, 600), torch.zeros(2, dtype=torch.int64)

    porting.plan(model, nn.CrossEntropyLoss(), batch, optimizer, PortOptions(precision="float16"), ipus=2)

    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) and after[name].dtype == torch.float32 for name in before)
    assert optimizer.param_groups[0]["params"][0] is model.layers[0].weight
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_replica_takes_as_few_ipus_as_it_fits_on():
    planned = plan_stack(4096, 6)

    assert planned.verdict == "fits"
    assert len(planned.ipus) == 4
    assert planned.options.accumulation == 2 * 4 - 1
    assert planned.forecast.replicas == 4


def test_as_many_ipus_as_are_asked_for_are_used():
    planned = plan_stack(512, 6, ipus=3)

    assert [memory.ipu for memory in planned.ipus] == [0, 1, 2]
    assert sorted(set(planned.stages.values())) == [1, 2]


def test_a_cut_that_there_is_not_is_refused():
    assert code_of(lambda: plan_stack(64, 1, ipus=8)) == "P002"


def test_ipus_and_stages_do_not_go_together():
    options = PortOptions(micro_batch=2, accumulation=3, stages={"output": 1})

    assert code_of(lambda: plan_stack(64, 2, ipus=2, options=options)) == "P002"


def test_tied_weights_stay_on_one_ipu():
    planned = plan_gpt(ipus=2)

    # the output uses the embedding's weight, so the pipeline comes back to its IPU
    assert list(planned.stages.values()) == [1, 0]


def test_pins_of_the_options_are_the_stages():
    planned = plan_stack(64, 4, options=PortOptions(micro_batch=2, accumulation=3, stages={"layers.2": 1}))

    assert planned.stages == {"layers.2": 1}


def test_a_plans_stages_train_as_one_ipu_does():
    def train(**options):
        torch.manual_seed(0)
        model = Stack(32, 6)
        ported = porting.to_ipu(
            model,
            nn.CrossEntropyLoss(),
            optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
            options=PortOptions(micro_batch=2, accumulation=5, **options),
            device="sim",
        )
        x, y = torch.linspace(-1, 1, 320).reshape(10, 32), torch.arange(10) % 4
        return [ported(x, y)[1].item() for _step in range(3)], ported.options.stages

    losses, none = train()
    split, stages = train(pipeline=plan_stack(32, 6, ipus=3))

    assert (none, len(stages)) == (None, 2)
    assert split == losses


def test_an_automatic_pipeline_is_planned_for_the_example():
    with torch.device("meta"):
        model = Stack(4096, 6)
    options = PortOptions(micro_batch=2, accumulation=7, pipeline="auto")

    assert code_of(lambda: porting.to_ipu(model, nn.CrossEntropyLoss(), options=options, device="sim")) == "P002"


@pytest.mark.slow
def test_an_automatic_pipeline_has_the_stages_of_the_plan():
    model = Stack(4096, 6)
    batch = torch.zeros(14, 4096), torch.zeros(14, dtype=torch.int64)
    optimizer = torch.optim.Adam(model.parameters())
    options = PortOptions(micro_batch=2, accumulation=7, pipeline="auto")

    ported = porting.to_ipu(
        model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options, device="sim", example=batch
    )

    assert ported.options.stages == plan_stack(4096, 6, options=options.replace(pipeline=None, accumulation=7)).stages


def test_of_several_batches_the_largest_is_planned_for():
    model = Stack(64, 2)
    batches = [(torch.zeros(rows, 64), torch.zeros(rows, dtype=torch.int64)) for rows in (1, 64, 3)]
    loss = nn.CrossEntropyLoss()

    planned = porting.plan(model, loss, batches)

    assert planned.ipus == porting.plan(model, loss, batches[1]).ipus


def test_more_rows_never_make_it_likelier_to_fit():
    chances = [plan_stack(2048, 4, rows=rows, machine="gc2").probability for rows in (1, 256, 1024, 4096, 16384)]

    assert all(more <= less + 1e-9 for less, more in zip(chances, chances[1:]))
    assert (chances[0] > 0.05, chances[-1] < 0.01) == (True, True)


def test_what_fits_nowhere_says_how_many_ipus_its_weights_fill():
    planned = plan_stack(16384, 8, machine="bow-pod4")

    assert planned.verdict == "does not fit"
    assert planned.least_ipus == 28
    assert "alone fill 28 IPUs" in str(planned)


def test_suggested_options_fit():
    planned = plan_stack(4096, 6, ipus=1)
    options = planned.suggested.replace(memory="ignore")

    assert not planned.fits
    assert plan_stack(4096, 6, rows=options.micro_batch, options=options).fits


def test_a_recurrent_network_near_the_limit_is_outside_the_evidence():
    with torch.device("meta"):
        model = nn.LSTM(2048, 2048, num_layers=4)

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = model

        def forward(self, x):
            return self.lstm(x)[0][-1]

    planned = porting.plan(Last(), nn.MSELoss(), (torch.zeros(16, 2, 2048), torch.zeros(2, 2048)), ipus=1)

    assert planned.verdict == "outside the evidence"
    assert any("lstm" in reason for reason in planned.outside)
    assert not planned.fits


def test_a_users_machine_is_outside_the_evidence_near_its_limit(tmp_path):
    (tmp_path / "mine.json").write_text(
        json.dumps(
            {
                "name": "mine",
                "chip": {"tiles": 64, "tile_memory": "512 KiB", "float16": "90 TFLOP/s", "float32": "45 TFLOP/s"},
                "links": {"between_chips": "100 GB/s", "to_host": "16 GB/s", "streaming_memory": "8 GB/s"},
                "systems": {"mine-8": {"chips": 8}},
            }
        )
    )

    planned = plan_stack(512, 6, machine=f"{tmp_path}/mine.json:mine-8", ipus=1)

    assert planned.machine.chip.memory_bytes == 32 << 20
    assert "no configuration of `mine` is known" in planned.outside


def test_inference_needs_no_optimizer_state_and_less_memory():
    model = Stack(512, 2)
    training = porting.plan(model, nn.CrossEntropyLoss(), (torch.zeros(2, 512), torch.zeros(2, dtype=torch.int64)))
    inference = porting.plan(model, None, (torch.zeros(2, 512),), mode="inference")

    assert inference.bytes_per_ipu < training.bytes_per_ipu
    assert inference.forecast.samples_per_second > training.forecast.samples_per_second


@pytest.mark.parametrize(
    ("changes", "term"),
    [
        ({"optimizer_state": "off_chip"}, "optimizer_bytes"),
        ({"available_memory": 0.001}, "temporary_bytes"),
        ({"recompute": ["layers.1", "layers.3"]}, "kept_bytes"),
        ({"precision": "float16"}, "weight_bytes"),
    ],
    ids=str,
)
def test_each_option_of_memory_shrinks_its_term(changes, term):
    plain = plan_stack(1024, 5, rows=512, ipus=1)
    changed = plan_stack(1024, 5, rows=512, ipus=1, options=PortOptions(micro_batch=512, **changes))

    assert changed.fullest.parts[term] < plain.fullest.parts[term]


def test_a_serialized_output_takes_less_at_one_time():
    plain = plan_gpt(ipus=1)
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 50000))
    batch = torch.zeros(64, 64), torch.zeros(64, dtype=torch.int64)
    options = PortOptions(micro_batch=64)
    whole = porting.plan(model, nn.CrossEntropyLoss(), batch, options=options)
    parts = porting.plan(model, nn.CrossEntropyLoss(), batch, options=options.replace(serialize={"1": 4}))

    assert plain.fits
    assert parts.fullest.temporary_bytes < whole.fullest.temporary_bytes


def test_a_plan_is_plain_data():
    plain = json.loads(json.dumps(plan_stack(512, 6, ipus=2).to_dict()))

    assert plain["machine"] == "bow-pod16"
    assert [len(ipu["stages"]) for ipu in plain["ipus"]] == [1, 1]
    assert plain["samples_per_second_low"] < plain["samples_per_second"] < plain["samples_per_second_high"]

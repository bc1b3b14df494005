"""The arithmetic of memory on a step that is small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from porting.capture import TensorInfo
from porting.planning.memory_model import Layout, measure_ipus, measure_stages
from tests.planning.step_chains import chain, operation

PLAIN = Layout(begins=(0,), ipus=(0,), marks=(), recomputes=False, accumulates=False, state_bytes=8)


def only(memories):
    (one,) = memories
    return one


def test_one_ipu_keeps_all_that_the_backward_pass_needs():
    memory = only(measure_ipus(chain(), PLAIN))

    assert (memory.weight_bytes, memory.optimizer_bytes, memory.accumulator_bytes) == (1600, 3200, 0)
    assert (memory.kept_bytes, memory.recomputed_bytes, memory.input_bytes) == (400, 0, 140)
    assert memory.total_bytes == sum(memory.parts.values())


def test_temporaries_are_a_product_and_a_weights_gradient():
    assert only(measure_ipus(chain(), PLAIN)).temporary_bytes == 500 + 100 + 400


def test_inference_has_the_results_that_are_still_to_read_and_no_gradient():
    elementwise = [replace(operation(number), is_product=False) for number in range(4)]
    step = replace(chain(), mode="inference", operations=tuple(elementwise))

    # what an operator reads and what it makes
    assert only(measure_ipus(step, PLAIN)).temporary_bytes == 200


def test_a_single_result_of_inference_is_counted_once():
    step = replace(chain(1), mode="inference", operations=(replace(operation(0), is_product=False),))

    assert only(measure_ipus(step, PLAIN)).temporary_bytes == 100


def test_a_result_that_is_read_late_in_inference_stays_until_then():
    elementwise = [replace(operation(number), is_product=False) for number in range(4)]
    step = replace(chain(), mode="inference", operations=tuple(elementwise))
    late = replace(step.values[1], read_at=(1, 3))
    step = replace(step, values=(step.values[0], late, *step.values[2:]))

    assert only(measure_ipus(step, PLAIN)).temporary_bytes == 300


@pytest.mark.parametrize(
    ("dtype", "width"), [(torch.int64, 4), (torch.float64, 4), (torch.float32, 4), (torch.int8, 1)]
)
def test_state_has_at_most_32_bits_on_the_device(dtype, width):
    buffer = TensorInfo("count", "buffer", (10,), dtype, dtype, requires_grad=False)

    assert only(measure_ipus(replace(chain(), buffers=(buffer,)), PLAIN)).buffer_bytes == 10 * width


def test_accumulation_keeps_the_gradient_of_every_weight():
    memory = only(measure_ipus(chain(), replace(PLAIN, accumulates=True, accumulator_bytes=2)))

    assert memory.accumulator_bytes == 800


def test_marks_keep_themselves_and_what_enters_and_one_stretch_is_computed_again():
    memory = only(measure_ipus(chain(), replace(PLAIN, marks=(1,), recomputes=True)))

    # the input and the result of operator 1 wait; of each half one value between is needed
    assert (memory.kept_bytes, memory.recomputed_bytes) == (200, 100)


@pytest.mark.parametrize(("num_stages", "copies"), [(2, [3, 1]), (4, [7, 5, 3, 1])])
def test_a_stage_keeps_what_enters_it_for_every_micro_batch_under_way(num_stages, copies):
    length = 4 // num_stages
    begins, ipus = tuple(range(0, 4, length)), tuple(range(num_stages))
    stages = measure_stages(chain(), replace(PLAIN, begins=begins, ipus=ipus, recomputes=True))

    assert [stage.kept_bytes for stage in stages] == [100 * number for number in copies]


def test_each_weight_is_where_it_is_used_first():
    layout = replace(PLAIN, begins=(0, 1), ipus=(0, 1), recomputes=True)

    assert [memory.weight_bytes for memory in measure_ipus(chain(), layout)] == [400, 1200]


def test_stages_on_one_ipu_add_up_and_share_temporaries():
    layout = replace(PLAIN, begins=(0, 1, 3), ipus=(0, 1, 0), recomputes=True)
    stages, (first, _second) = measure_stages(chain(), layout), measure_ipus(chain(), layout)

    assert first.stages == (0, 2)
    assert first.weight_bytes == stages[0].weight_bytes + stages[2].weight_bytes
    assert first.temporary_bytes == max(stages[0].temporary_bytes, stages[2].temporary_bytes)


def test_half_of_the_micro_batch_and_half_precision_each_halve_what_is_kept():
    halved = only(measure_ipus(chain(), replace(PLAIN, scale=0.5)))
    in_half = only(measure_ipus(chain(), replace(PLAIN, halves=True)))

    assert (halved.kept_bytes, in_half.kept_bytes) == (200, 200)
    assert (halved.weight_bytes, in_half.weight_bytes) == (1600, 800)


def test_state_off_the_chip_comes_for_one_weight_at_a_time():
    memory = only(measure_ipus(chain(), replace(PLAIN, state_off_chip=True, state_shards=2)))

    assert memory.optimizer_bytes == 0
    assert memory.temporary_bytes >= 100 * 8 // 2 + 400


def test_inference_keeps_nothing():
    memory = only(measure_ipus(replace(chain(), mode="inference"), PLAIN))

    assert (memory.kept_bytes, memory.accumulator_bytes, memory.optimizer_bytes) == (0, 0, 0)


def test_only_what_the_backward_pass_needs_is_kept():
    assert chain(length=4).kept_bytes == 4 * 100


def test_operators_keep_and_read_what_the_one_before_has_made():
    step = chain(length=4)

    assert step.collect_values("kept_at", 1, 3) == step.collect_values("read_at", 1, 3) == {1, 2}
    assert step.collect_values("read_at", 3, 3) == set()


def test_ends_are_the_operators_that_make_a_modules_output():
    assert chain(length=4).ends_of(["layer3", "layer1", "elsewhere"]) == (1, 3)


def test_a_module_begins_where_the_first_of_its_inner_modules_does():
    paths = ["embed", "blocks.0.norm", "blocks.0.head", "blocks.1.norm"]
    step = chain(length=4)
    step = replace(step, operations=tuple(replace(op, module_path=path) for op, path in zip(step.operations, paths)))

    assert step.begins == {
        "embed": 0,
        "blocks": 1,
        "blocks.0": 1,
        "blocks.0.norm": 1,
        "blocks.0.head": 2,
        "blocks.1": 3,
        "blocks.1.norm": 3,
    }

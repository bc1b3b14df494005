"""What a device refuses about pipelines, phases, the number of IPUs, and overlapped I/O."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException

import porting.simulator as simulator
from porting.simulator import OutputMode, OverlapMode, set_overlap_for_input, set_overlap_for_output

from ..operator_cases.refused import LACKING, REFUSED


class Stages(nn.Module):
    """One linear layer on each of `ipus`, in blocks or begun one after the other; the sum of the output is the loss."""

    def __init__(self, *ipus, begins=False):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in ipus)
        self.ipus = ipus
        self.begins = begins

    def forward(self, x):
        for number, (ipu, layer) in enumerate(zip(self.ipus, self.layers)):
            if self.begins:
                simulator.Block.start(f"B{number}", ipu_id=ipu)
                x = layer(x)
            else:
                with simulator.Block(f"B{number}", ipu_id=ipu):
                    x = layer(x)
        simulator.Block.start("loss", ipu_id=self.ipus[-1])
        return x, simulator.identity_loss(x, reduction="sum")


def train(model, *, accumulation=1, iterations=1, strategy=None, replicas=1):
    options = simulator.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    if strategy is not None:
        options.setExecutionStrategy(strategy)
    executor = simulator.trainingModel(model, options)
    executor.compile(torch.ones(accumulation * iterations * replicas, 2))
    return executor


def infer(model, *, iterations=1, strategy=None, replicas=1):
    options = simulator.Options().deviceIterations(iterations).replicationFactor(replicas)
    if strategy is not None:
        options.setExecutionStrategy(strategy)
    executor = simulator.inferenceModel(model, options)
    executor.compile(torch.ones(iterations * replicas, 2))
    return executor


TRAINING_MESSAGE = (
    r"poptorch\.Options\(\)\.Training\.gradientAccumulation must be greater than or equal to the number of pipeline "
    r"stages \(7\) when using poptorch\.PipelinedExecution\. Please note that a model with 4 pipeline stages in "
    r"PopTorch will have an additional 3 stages when training\."
)
INFERENCE_MESSAGE = (
    r"poptorch\.Options\(\)\.deviceIterations must be greater than or equal to the number of pipeline stages \(4\) "
    r"when using poptorch\.PipelinedExecution\."
)


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize(("accumulation", "iterations"), [(1, 1), (4, 1), (5, 1), (6, 8)])
def test_a_training_pipeline_needs_accumulation_for_all_its_stages(begins, accumulation, iterations):
    with pytest.raises(simulator.Error, match=TRAINING_MESSAGE):
        train(Stages(0, 1, 2, 3, begins=begins), accumulation=accumulation, iterations=iterations)


@pytest.mark.parametrize("iterations", [1, 2])
def test_enough_accumulation_fills_a_training_pipeline(iterations):
    assert train(Stages(0, 1, 2, 3), accumulation=7, iterations=iterations).isCompiled()


@pytest.mark.parametrize("begins", [False, True])
def test_an_inference_pipeline_needs_device_iterations_for_all_its_stages(begins):
    with pytest.raises(simulator.Error, match=INFERENCE_MESSAGE):
        infer(Stages(0, 1, 2, 3, begins=begins), iterations=2)


@pytest.mark.parametrize("begins", [False, True])
def test_enough_device_iterations_fill_an_inference_pipeline(begins):
    assert infer(Stages(0, 1, 2, 3, begins=begins), iterations=4).isCompiled()


def test_sharded_execution_needs_neither():
    strategy = simulator.ShardedExecution()

    assert train(Stages(0, 1, 2, 3), strategy=strategy).isCompiled()
    assert infer(Stages(0, 1, 2, 3), strategy=strategy).isCompiled()


def test_phased_execution_needs_neither():
    strategy = simulator.SerialPhasedExecution("B0", ["B1", "loss"])

    assert train(Stages(0, 0), strategy=strategy).isCompiled()


def test_stages_that_follow_each_other_on_one_ipu_are_one():
    strategy = simulator.PipelinedExecution("B0", "B1", "B2", "loss")

    assert train(Stages(0, 0, 0), strategy=strategy).isCompiled()
    with pytest.raises(simulator.Error, match=r"number of pipeline stages \(3\)"):
        train(Stages(0, 0, 1), accumulation=2)


def test_coming_back_to_an_ipu_is_another_stage():
    with pytest.raises(simulator.Error, match=r"deviceIterations must be .* number of pipeline stages \(3\)"):
        infer(Stages(0, 1, 0), iterations=2)


def test_a_single_stage_needs_neither():
    assert train(Stages(0, 0)).isCompiled()


def test_a_pipeline_begins_on_ipu_0_also_if_no_block_is_there():
    with pytest.raises(simulator.Error, match=r"deviceIterations must be .* number of pipeline stages \(3\)"):
        infer(Stages(1, 3), iterations=2)
    with pytest.raises(simulator.Error, match=r"number of pipeline stages \(3\)"):
        train(Stages(1, 1), accumulation=2)


def test_a_failed_compilation_can_be_repeated():
    executor = simulator.inferenceModel(Stages(0, 1))

    for _ in range(2):
        with pytest.raises(simulator.Error, match="deviceIterations must be greater"):
            executor(torch.ones(1, 2))
        assert not executor.isCompiled()
        assert not simulator.poptorch_core.isCompilingWithDispatcher()


def test_results_of_a_pipeline_are_those_of_accumulation():
    x, results = torch.randn(6, 2), []
    for strategy in (simulator.PipelinedExecution(), simulator.ShardedExecution()):
        torch.manual_seed(0)
        model = Stages(0, 1)
        options = simulator.Options().deviceIterations(2).setExecutionStrategy(strategy)
        options.Training.gradientAccumulation(3)
        simulator.trainingModel(model, options)(x)
        results.append([weight.clone() for weight in model.state_dict().values()])

    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def test_even_phases_run_on_even_ipus():
    strategy = simulator.ParallelPhasedExecution(simulator.Stage("B0"), simulator.Stage("B1", "loss"))
    message = "When phases are executed in parallel: even phases must run on even IPUs and odd phases on odd IPUs"

    with pytest.raises(simulator.Error, match=message):
        infer(Stages(1, 0), strategy=strategy)

    assert infer(Stages(0, 1), strategy=strategy).isCompiled()


def test_serial_phases_run_anywhere():
    assert infer(Stages(1, 0), strategy=simulator.SerialPhasedExecution("B0", ["B1", "loss"])).isCompiled()


@pytest.mark.parametrize(
    ("model", "replicas", "wanted"), [(Stages(0), 128, 128), (Stages(0, 1), 33, 66), (Stages(64), 1, 65)]
)
def test_there_are_at_most_64_ipus(model, replicas, wanted):
    message = (
        rf"Too many IPUs requested \({wanted}\)\. Experiments that need more than 64 IPUs require distributed execution"
    )

    with pytest.raises(simulator.Error, match=message):
        infer(model, replicas=replicas, strategy=simulator.ShardedExecution())


def test_64_ipus_are_allowed():
    assert infer(Stages(0, 63), strategy=simulator.ShardedExecution()).device_session.compiled.num_ipus == 64


@pytest.mark.parametrize(("ipus", "replicas", "expected"), [((0,), 1, 1), ((0, 2), 1, 3), ((3,), 2, 8)])
def test_a_model_needs_the_ipus_up_to_its_last_for_each_replica(ipus, replicas, expected):
    executor = infer(Stages(*ipus), replicas=replicas, strategy=simulator.ShardedExecution())

    assert executor.device_session.compiled.num_ipus == expected


def test_on_hardware_ipus_come_in_powers_of_two(monkeypatch):
    monkeypatch.setenv("PORTING_SIM_HARDWARE", "bow")
    strategy = simulator.ShardedExecution()
    message = (
        ".+The model specifies the use of 3 IPUs, however PopTorch must reserve a minimum of 4 in order to allow the "
        "model to run, because PopTorch must reserve a power of 2 or maximum of 64 IPUs per process. Please "
        r"reconfigure your model to use a different number of IPUs or set "
        r"poptorch.Options\(\).autoRoundNumIPUs\(True\)."
    )

    with pytest.raises(simulator.Error, match=message):
        infer(Stages(0, 1, 2), strategy=strategy)


@pytest.mark.parametrize(
    ("ipus", "hardware", "message"),
    [
        ((0, 64), "", r"Too many IPUs requested \(65\)"),
        ((0, 1, 2), "bow", "must reserve a minimum of 4"),
        ((0, 1, 2), "", "must reserve a minimum of 4"),
    ],
)
def test_the_number_of_ipus_is_looked_at_before_the_size_of_the_pipeline(monkeypatch, ipus, hardware, message):
    monkeypatch.setenv("PORTING_SIM_HARDWARE", hardware)

    with pytest.raises(simulator.Error, match=message):
        infer(Stages(*ipus))


def test_without_hardware_any_number_of_ipus_will_do():
    assert infer(Stages(0, 1, 2), strategy=simulator.ShardedExecution()).device_session.compiled.num_ipus == 3


@pytest.mark.parametrize("strategy", [simulator.PipelinedExecution(), simulator.ShardedExecution()])
def test_inference_refuses_accumulation_when_the_model_is_wrapped(strategy):
    options = simulator.Options().setExecutionStrategy(strategy)
    options.Training.gradientAccumulation(2)

    with pytest.raises(simulator.Error, match="You must set poptorch.Options") as caught:
        simulator.inferenceModel(Stages(0), options)

    is_pipelined = not isinstance(strategy, simulator.ShardedExecution)
    assert ("Use poptorch.Options().deviceIterations to process" in str(caught.value)) == is_pipelined


LOOP = OverlapMode.OverlapDeviceIterationLoop


class Model(nn.Module):
    """Runs `body(x, y)` as its forward."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, y):
        return self.body(x, y)


def options(*, strategy=None, io_tiles=32, mode=OutputMode.All):
    made = simulator.Options().outputMode(mode)
    made.setExecutionStrategy(strategy or simulator.ShardedExecution())
    if io_tiles:
        made.TensorLocations.numIOTiles(io_tiles)
    return made


def run(body, own_options=None):
    return simulator.inferenceModel(Model(body), own_options or options())(torch.ones(2), torch.full((2,), 3.0))


def both(x, y):
    return set_overlap_for_output(set_overlap_for_input(x, LOOP) + y, LOOP)


@pytest.mark.parametrize("mode", list(OverlapMode))
def test_marks_change_no_result(mode):
    def body(x, y):
        x, y = set_overlap_for_input((x, y), mode)
        return set_overlap_for_output([x + y], mode)

    torch.testing.assert_close(run(body), [torch.full((2,), 4.0)])


def test_an_overlapped_input_is_used_by_its_mark_alone():
    message = (
        "poptorch.set_overlap_for_input must be the only op applied to an input. This is not the case for input 0 to "
        "the model."
    )

    with pytest.raises(simulator.Error, match=message):
        run(lambda x, y: set_overlap_for_input(x, LOOP) + y + x)


def test_a_later_input_is_named_by_its_number():
    with pytest.raises(simulator.Error, match="This is not the case for input 1 to the model."):
        run(lambda x, y: set_overlap_for_input(y, LOOP) + y + x)


def test_an_overlapped_input_is_an_input():
    message = "poptorch.set_overlap_for_input applied on a node which is not a tensor input to the model."

    with pytest.raises(simulator.Error, match=message):
        run(lambda x, y: set_overlap_for_input(x + y, LOOP))


def test_an_overlapped_output_is_returned_once():
    def body(x, y):
        z = set_overlap_for_output(x + y, LOOP)
        return z, {"again": (z,)}

    message = (
        "poptorch.set_overlap_for_output cannot be used with a tensor that is returned twice. Please check all "
        "returned tensors including those nested in tuples/lists."
    )
    with pytest.raises(simulator.Error, match=message):
        run(body)


@pytest.mark.parametrize(
    "body",
    [
        lambda x, y: (z := x + y, set_overlap_for_output(z, LOOP)),
        lambda x, y: (set_overlap_for_output(z := x + y, LOOP), set_overlap_for_output(z, LOOP)),
        lambda x, y: (set_overlap_for_output(x * y, LOOP) + 1, z := x + y, set_overlap_for_output(z, LOOP)),
    ],
    ids=["beside its mark", "under two marks", "with a mark that is no output"],
)
def test_the_tensor_under_a_mark_is_returned_once_whatever_else_is_wrong(body):
    with pytest.raises(simulator.Error, match="with a tensor that is returned twice"):
        run(body, options(strategy=simulator.PipelinedExecution(), io_tiles=0))


def test_an_overlapped_output_is_an_output():
    message = "poptorch.set_overlap_for_output applied on a node which is not a tensor output to the model."

    with pytest.raises(simulator.Error, match=message):
        run(lambda x, y: set_overlap_for_output(x + y, LOOP) * 2)


def test_pipelines_do_not_overlap():
    message = (
        "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only one IPU, please switch "
        "to poptorch.ShardedExecution."
    )

    with pytest.raises(simulator.Error, match=message):
        run(both, options(strategy=simulator.PipelinedExecution(), io_tiles=0, mode=OutputMode.Final))


def test_overlap_needs_tiles_for_it():
    message = (
        "No IO tiles allocated. You must allocate at least 32 IO tiles using "
        r"poptorch.Options\(\).TensorLocations.numIOTiles."
    )

    with pytest.raises(simulator.Error, match=message):
        run(both, options(io_tiles=0, mode=OutputMode.Final))


@pytest.mark.parametrize("mode", [OutputMode.Final, OutputMode.EveryN])
def test_overlap_needs_all_results_or_their_sum(mode):
    message = (
        "Unsupported output mode for overlapped IO. Please switch output mode to poptorch.OutputMode.All or "
        "poptorch.OutputMode.Sum."
    )
    own = options()
    own.outputMode(mode, 1 if mode == OutputMode.EveryN else None)

    with pytest.raises(simulator.Error, match=message):
        run(both, own)


@pytest.mark.parametrize("mode", [OutputMode.All, OutputMode.Sum])
def test_all_results_or_their_sum_can_overlap(mode):
    torch.testing.assert_close(run(both, options(mode=mode)), torch.full((2,), 4.0))


def test_faults_of_the_graph_come_before_those_of_the_options():
    with pytest.raises(simulator.Error, match="not a tensor input"):
        run(lambda x, y: set_overlap_for_input(x + y, LOOP), simulator.Options())


def test_nothing_is_checked_without_overlap():
    def body(x, y):
        return set_overlap_for_output(set_overlap_for_input(x + y, OverlapMode.NoOverlap), OverlapMode.NoOverlap) * x

    torch.testing.assert_close(run(body, simulator.Options()), torch.full((2,), 4.0))


COVERAGE = Path(__file__).parents[3] / "shared" / "spec" / "op-coverage.json"

# Listed as unsupported, and yet compositions of what the device has, or told apart by how they are called.
COMPOSED = set(
    "torch.conj torch.real torch.imag torch.lerp torch.deg2rad torch.rad2deg torch.ldexp torch.nn.LPPool1d "
    "torch.nn.LPPool2d torch.nn.LocalResponseNorm torch.nn.SyncBatchNorm torch.nn.utils.spectral_norm "
    "torch.nn.TripletMarginWithDistanceLoss".split()
)
# Automatic differentiation in `forward`, and a layer that needs it: test_tracing.py.
AUTOGRAD = set(
    "torch.autograd.Function torch.autograd.grad torch.Tensor.backward torch.nn.CrossMapLRN2d "
    "torch.nn.AdaptiveLogSoftmaxWithLoss".split()
)


class Weighted(nn.Module):
    """A call on a parameter."""

    def __init__(self, call, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.1, 2.0, torch.Size(shape).numel()).reshape(shape))
        self.call = call

    def forward(self):
        return self.call(self.weight)


def compiled(poptorch, call, *shape):
    executor = poptorch.inferenceModel(Weighted(call, *shape))
    executor.compile()
    return executor


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", LACKING)
def test_operators_that_the_device_lacks_are_named(poptorch, name):
    call, shape, operator = LACKING[name]

    with pytest.raises(poptorch.Error) as caught:
        compiled(poptorch, call, *shape)

    assert f"Unsupported ops found in compiled model: [aten::{operator}]. Not all operations" in str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_calls_that_the_device_refuses_are_answered_in_its_words(poptorch, name):
    make, shape, message = REFUSED[name]

    with pytest.raises(poptorch.Error) as caught:
        compiled(poptorch, make(), *shape)

    assert message in str(caught.value)


def test_all_lacking_operators_are_named_at_once(poptorch):
    with pytest.raises(poptorch.Error) as caught:
        compiled(poptorch, lambda x: torch.lgamma(torch.sinc(torch.lgamma(x))), 4)

    assert "[aten::lgamma, aten::sinc]" in str(caught.value)


def test_a_refusal_is_a_finding_with_a_place_and_a_remedy():
    import porting.simulator as simulator

    with pytest.raises(simulator.Error) as caught:
        compiled(simulator, lambda x: F.huber_loss(x, x), 4)

    finding = caught.value.finding
    assert finding.code == "C017"
    assert finding.place.file.endswith("test_graph_checks.py")
    assert "smooth_l1_loss" in finding.help[0]


@pytest.mark.parametrize(
    ("model", "inputs", "remedy"),
    [
        (nn.LSTM(4, 4, num_layers=2), [torch.ones(3, 1, 4)], "one layer after the other"),
        (nn.GRU(4, 4, bidirectional=True), [torch.ones(3, 1, 4)], "a second layer on `x.flip(0)`"),
        (nn.CrossEntropyLoss(torch.ones(4)), [torch.ones(1, 4), torch.tensor([1])], "weigh the samples"),
    ],
    ids=["layers", "directions", "class weights"],
)
def test_a_refused_call_of_a_known_operator_names_the_remedy(model, inputs, remedy):
    import porting.simulator as simulator

    with pytest.raises(simulator.Error) as caught:
        simulator.inferenceModel(model).compile(*inputs)

    assert remedy in caught.value.finding.help[0]


class Called(nn.Module):
    """The same as `Weighted` with an input, which a port needs."""

    def __init__(self, call, *shape):
        super().__init__()
        self.inner = Weighted(call, *shape)

    def forward(self, _x):
        return self.inner()


ALL = {**LACKING, **{name: (make(), shape, message) for name, (make, shape, message) in REFUSED.items()}}
# a port answers assignments with steps, which in a graph look like writes to a view
UNTOLD = {"a write to every other row"}


def find_help(compile):
    """Return the help of the error C017 that `compile()` raises; None for another error or none."""
    import porting.simulator as simulator
    from porting import PortingError

    try:
        compile()
    except (simulator.Error, PortingError) as error:
        return " ".join(error.finding.help) if error.finding.code == "C017" else None
    return None


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", sorted(ALL.keys() - UNTOLD))
@pytest.mark.filterwarnings("ignore")
def test_the_help_names_ports_where_a_port_has_an_answer(name):
    import porting.simulator as simulator
    from porting import to_ipu

    call, shape, _operator = ALL[name]
    x = torch.ones(1)

    plain = find_help(lambda: simulator.inferenceModel(Called(call, *shape)).compile(x))
    ported = find_help(lambda: to_ipu(Called(call, *shape), device="sim").inference().compile(x))

    assert plain is None or ("`porting.to_ipu(model)` computes it" in plain) == (ported is None)
    assert "to_ipu(model)" not in (ported or "")


def test_a_finding_says_that_the_request_to_report_is_not_meant(poptorch):
    with pytest.raises(poptorch.Error, match="please report(.|\n)*PopTorch's text: there is nothing to report"):
        compiled(poptorch, torch.inverse, 2, 2)


def test_reading_with_a_mask_raises_the_exception_of_torch(poptorch):
    with pytest.raises(DynamicOutputShapeException):
        compiled(poptorch, lambda x: x[x > 0], 4)


def test_reading_with_a_mask_says_what_to_do_instead():
    import porting.simulator as simulator

    with pytest.raises(simulator.Error) as caught:
        compiled(simulator, lambda x: x[x > 0], 4)

    first_line, *explanation = str(caught.value).splitlines()
    assert first_line.startswith("Operations using aten::nonzero are unsupported")
    assert any("torch.where" in line for line in explanation)
    assert caught.value.args == (str(caught.value),)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x * torch.triu(torch.ones(4, 4)),
        lambda x: x * torch.ones(4, 4).tril_(),
        lambda x: x * torch.diag(torch.arange(4)),
        lambda x: x * torch.tensor([1, 2]).repeat_interleave(2),
        lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]).lgamma(),
    ],
)
def test_constants_are_computed_with_any_operator(poptorch, call):
    model = Weighted(call, 4, 4)

    result = poptorch.inferenceModel(model)()

    torch.testing.assert_close(result, model().detach())


def test_what_was_a_constant_is_none_after_a_write(poptorch):
    with pytest.raises(poptorch.Error, match="only supported within constant expressions"):
        compiled(poptorch, lambda x: torch.ones(4, 4).add_(x).triu_(), 4, 4)


def test_random_numbers_are_no_constants(poptorch):
    with pytest.raises(poptorch.Error, match="only supported within constant expressions"):
        compiled(poptorch, lambda x: x + torch.rand(4, 4).triu(), 4, 4)


def test_label_smoothing_is_left_out(poptorch):
    model = Weighted(lambda x: F.cross_entropy(x, torch.tensor([1, 2]), label_smoothing=0.3), 2, 4)

    loss = poptorch.inferenceModel(model)()

    torch.testing.assert_close(loss, F.cross_entropy(model.weight.detach(), torch.tensor([1, 2])))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_reflected_padding_has_no_gradient(poptorch, mode):
    def padded(x):
        return poptorch.identity_loss(F.pad(x, (1, 1), mode).sum(), "none")

    model = Weighted(padded, 2, 4)
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))

    with pytest.raises(poptorch.Error, match="only supported in inference"):
        executor()


def test_attention_may_unflatten_its_projection(poptorch):
    attention = nn.MultiheadAttention(4, 2)
    x = torch.rand(3, 2, 4)

    result, _weights = poptorch.inferenceModel(attention)(x, x, x)

    torch.testing.assert_close(result, attention(x, x, x)[0].detach())


def test_a_refused_model_is_as_before(poptorch):
    model = Weighted(torch.lgamma, 4)
    weight = model.weight

    with pytest.raises(poptorch.Error):
        poptorch.inferenceModel(model)()

    assert model.weight is weight
    assert torch.equal(model(), torch.lgamma(weight))


def test_the_tables_cover_what_is_known_to_be_unsupported():
    if not COVERAGE.is_file():
        pytest.skip(f"no list of operators: {COVERAGE} does not exist")
    listed = json.loads(COVERAGE.read_text("utf-8"))
    unsupported = {
        name for name, entry in listed.items() if entry.get("status") == "unsupported" and name.startswith("torch.")
    }

    assert unsupported - set(LACKING) - set(REFUSED) - COMPOSED - AUTOGRAD == set()

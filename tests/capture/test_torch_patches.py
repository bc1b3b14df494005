"""Parts of torch that look at values or devices work in a captured `forward`, and are themselves again afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import distributions, nn
from torch.utils.checkpoint import checkpoint

from porting.capture import capture_step
from porting.diagnostics import CaptureError


class Sign(torch.autograd.Function):
    """Has a backward of its own, and the old form of `forward`."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        assert ctx.needs_input_grad == (False,)
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Product(torch.autograd.Function):
    """The new form: the context is set up apart."""

    @staticmethod
    def forward(x, factor):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def operators(graph):
    return [operator.operator for operator in graph.operators]


# -- custom autograd functions


@pytest.mark.parametrize("function", [Sign.apply, lambda x: Product.apply(x, 2.0)])
def test_a_custom_function_off_the_gradients_path_runs_forward(trace, function):
    graph = trace(lambda weight, x: F.mse_loss(weight, function(x)), torch.ones(5, 4), mode="training")

    assert operators(graph)[0] in ("aten.sign.default", "aten.mul.Tensor")


def test_a_custom_function_under_no_grad_runs_forward(trace):
    def forward(weight, x):
        with torch.no_grad():
            signs = Sign.apply(weight)
        return F.mse_loss(weight * signs, x)

    assert "aten.sign.default" in operators(trace(forward, torch.ones(5, 4), mode="training"))


def test_a_custom_function_of_the_host_runs_for_real(trace):
    graph = trace(lambda weight: weight * float(Sign.apply(torch.tensor(-3.0, device="cpu"))))

    assert [node.args[1] for node in graph.graph.nodes if node.op == "call_function"] == [-1.0]


def test_the_refusal_tells_how_to_write_a_straight_through_gradient(refusal):
    finding = refusal(lambda weight: F.mse_loss(Sign.apply(weight), weight), mode="training")

    assert finding.code == "C005"
    assert "`Sign` is a custom autograd function" in finding.message
    assert "x + (rounded - x).detach()" in finding.help[0]


def test_a_backward_hook_is_refused_in_training():
    model = nn.Sequential(nn.Linear(3, 3))
    model[0].register_full_backward_hook(lambda module, inputs, outputs: None)

    with pytest.raises(CaptureError) as caught:
        capture_step(model, [torch.ones(2, 3), torch.ones(2, 3)], loss=F.mse_loss)

    assert caught.value.code == "C007"
    assert "a module with a backward hook" in caught.value.finding.message


# -- checkpoints


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("preserve_rng_state", [True, False])
def test_a_checkpointed_function_is_recorded_once(trace, use_reentrant, preserve_rng_state):
    def forward(weight, x):
        y = checkpoint(torch.sin, weight, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state)
        return F.mse_loss(y, x)

    graph = trace(forward, torch.ones(5, 4), mode="training")

    assert operators(graph).count("aten.sin.default") == 1
    assert graph.loss_has_gradient


def test_keywords_reach_a_checkpointed_function(trace):
    graph = trace(lambda weight: checkpoint(torch.add, weight, other=weight, alpha=2, use_reentrant=False))

    assert operators(graph) == ["aten.add.Tensor"]


# -- layers that look at values, devices or types


def test_a_mask_is_not_compared_with_the_causal_one():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 1)
    mask = nn.Transformer.generate_square_subsequent_mask(5)

    graph = capture_step(model, [torch.ones(2, 5, 8), mask], mode="inference")

    assert "aten.scaled_dot_product_attention.default" in operators(graph)


def test_a_mask_that_is_called_causal_is_taken_to_be():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)

    capture_step(layer, [torch.ones(2, 5, 8), mask], {"is_causal": True}, mode="inference")


@pytest.mark.parametrize("layer", [nn.RNN(3, 4), nn.LSTM(3, 4), nn.GRU(3, 4)])
def test_recurrent_layers_take_inputs_of_another_precision(layer):
    graph = capture_step(layer, [torch.ones(5, 2, 3).half()], mode="inference")

    assert graph.outputs[0].dtype == torch.float16


def test_recurrent_layers_still_check_shapes():
    with pytest.raises(RuntimeError, match="input.size"):
        capture_step(nn.LSTM(3, 4), [torch.ones(5, 2, 7)], mode="inference")


def test_distributions_do_not_check_values(trace):
    graph = trace(lambda weight: distributions.Normal(weight, weight.exp()).log_prob(weight))

    assert "aten.exp.default" in operators(graph)


def test_torchs_own_functions_make_constants_too(trace):
    # it calls `torch.tensor(..., device=indices.device)` where the user's own calls are not seen
    graph = trace(lambda weight, x: torch.unravel_index(x, (2, 3)), torch.tensor([4, 1]))

    assert [info.shape for info in graph.outputs] == [(2,), (2,)]
    assert len(graph.constants) == 2


def test_the_old_way_to_make_a_tensor_makes_a_device_tensor(trace):
    graph = trace(lambda weight: weight[0] + weight.new([1.0, 2.0, 3.0, 4.0]) + weight.new(4).zero_())

    assert graph.constant_values[0].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_norms_are_those_of_the_cpu(trace):
    graph = trace(lambda weight: [weight.norm(), weight.norm(dim=1), torch.norm(weight, 1), weight.norm("nuc")])

    assert operators(graph)[:3] == ["aten.linalg_vector_norm.default"] * 3


@pytest.mark.filterwarnings("ignore:`torch.jit.(script|trace)")
@pytest.mark.parametrize("compile_", [torch.jit.script, lambda model: torch.jit.trace(model, torch.ones(2, 3))])
def test_compiled_modules_keep_their_tensors(compile_):
    model = nn.Sequential(nn.Linear(3, 3), compile_(nn.Sequential(nn.Linear(3, 3), nn.ReLU())))
    before = [parameter.data_ptr() for parameter in model.parameters()]

    graph = capture_step(model, [torch.ones(2, 3)], mode="inference")

    assert operators(graph) == ["aten.linear.default", "aten.linear.default", "aten.relu.default"]
    assert [parameter.data_ptr() for parameter in model.parameters()] == before


@pytest.mark.parametrize(
    "branch",
    [
        lambda weight: torch.cond(weight.sum() > 0, torch.sin, torch.cos, (weight,)),
        lambda weight: torch.while_loop(lambda w: w.sum() > 0, lambda w: (w - 1,), (weight,)),
    ],
)
def test_a_branch_on_a_value_is_told_to_compute_both(refusal, branch):
    finding = refusal(branch)

    assert finding.code == "C001"
    assert "torch.where(condition, a, b)" in finding.help[0]


# -- afterwards


def patched_things():
    return [
        torch.autograd.Function.__dict__["apply"],
        torch.utils.checkpoint._checkpoint_without_reentrant_generator,
        nn.modules.transformer._detect_is_causal_mask,
        nn.RNNBase.check_input,
        distributions.Distribution._validate_args,
        torch.cond,
        torch.tensor,
        torch.as_tensor,
        torch.asarray,
        torch.range,
    ]


@pytest.mark.parametrize("function", [torch.sin, lambda weight: weight.item(), lambda weight: 1 / 0])
def test_torch_is_itself_again(body, function):
    before = patched_things()

    try:
        capture_step(body(function), mode="inference")
    except (CaptureError, ZeroDivisionError):
        pass

    assert all(now is then for now, then in zip(patched_things(), before))


def test_captures_in_several_threads_wait_for_each_other(body):
    before, graphs = patched_things(), []
    models = [body(torch.sin) for _ in range(8)]
    threads = [
        threading.Thread(target=lambda model=model: graphs.append(capture_step(model, mode="inference")))
        for model in models
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [operators(graph) for graph in graphs] == [["aten.sin.default"]] * 8
    assert all(now is then for now, then in zip(patched_things(), before))


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_other_threads_make_tensors_of_the_host_meanwhile(trace):
    made = []

    def forward(weight):
        with ThreadPoolExecutor(1) as pool:
            made.append(pool.submit(lambda: torch.range(0, 3)).result())
            with pytest.raises(RuntimeError, match="device"):
                pool.submit(lambda: torch.tensor([1.0], device="ipu")).result()
        return weight * 2

    graph = trace(forward)

    assert type(made[0]) is torch.Tensor
    assert made[0].tolist() == [0, 1, 2, 3]
    assert list(graph.constants) == []


def test_a_capture_inside_a_capture_is_one_of_its_own(trace):
    inner = []

    def forward(weight):
        inner.append(capture_step(nn.Linear(3, 2), [torch.ones(4, 3, device="cpu")], mode="inference"))
        return weight * 2

    outer = trace(forward)

    assert operators(outer) == ["aten.mul.Tensor"]
    assert operators(inner[0]) == ["aten.linear.default"]


# -- what the device ignores of the host


def test_a_device_that_ignores_custom_functions_differentiates_what_forward_does():
    reported = []
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            return F.mse_loss(Product.apply(self.weight, 2.0), x)

    graph = capture_step(Scaled(), [torch.ones(2)], host_features="ignored", listener=reported.append)

    assert graph.loss_has_gradient
    assert "aten.mul.Tensor" in operators(graph)
    assert [finding.code for finding in reported] == ["C005"]


def test_a_context_of_an_ignored_function_knows_which_arguments_need_a_gradient(trace):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, scale):
            seen.append((ctx.needs_input_grad, torch.is_grad_enabled()))
            return x * factor * scale

    seen: list = []
    trace(
        lambda weight: F.mse_loss(Scaled.apply(weight, weight.detach(), 2.0), weight),
        mode="training",
        host_features="ignored",
    )

    assert seen == [((True, False, False), True)]


def test_unknown_treatments_of_host_features_are_refused():
    with pytest.raises(ValueError, match="host_features must be 'refused', 'ignored' or 'computed'"):
        capture_step(nn.Linear(2, 2), [torch.ones(2)], mode="inference", host_features="maybe")

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics import BatchError


@pytest.fixture
def ported(make_model):
    model = make_model().append(nn.Dropout(0.5))
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


def test_inference_is_the_model_in_eval_mode(ported, make_model, batches, same):
    x, _ = batches[0]

    output = ported.inference()(x)

    same(output, make_model().eval()(x).detach())


@pytest.mark.parametrize("first", ["training", "inference"])
def test_inference_has_the_weights_of_training_whichever_was_first(first, ported, batches, train_ported, same):
    x, _ = batches[0]
    infer = ported.inference()
    if first == "inference":
        infer(x)

    for batch in batches[:3]:
        ported(*batch)
        output = infer(x)
        same(output, ported.model.eval()(x).detach())
        ported.model.train()


def test_inference_never_changes_anything(ported, batches, same):
    ported(*batches[0])
    before, state = ported.state_dict(), ported.optimizer_state_dict()

    for x, _ in batches:
        ported.inference()(x)

    same(ported.state_dict(), before)
    assert ported.optimizer_state_dict() == state
    assert ported.report().num_training_calls == 1


class Counting(nn.Module):
    """Counts its calls, in eval mode as well, and adds the count."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.layer(x) + self.calls


@pytest.mark.parametrize("device_iterations", [1, 2])
def test_what_forward_counts_in_eval_mode_goes_on_everywhere(device_iterations, batches):
    model = Counting()
    options = PortOptions(device_iterations=device_iterations)
    ported = to_ipu(
        model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.0), options=options
    )
    x, y = batches[0]

    ported(x, y)
    first = ported.inference()(x)
    second = ported.inference()(x)
    counted = model.calls.item()
    ported(x, y)
    ported.eval()(x, y)

    assert torch.allclose(second - first, torch.full_like(first, device_iterations))
    assert (counted, model.calls.item()) == (3 * device_iterations, 5 * device_iterations)


def test_validation_between_steps_leaves_training_as_it_is(ported, batches, same):
    def train(validates):
        ported.load_state_dict(start)
        losses = []
        for x, y in batches:
            torch.manual_seed(0)
            losses.append(ported(x, y)[1].item())
            if validates:
                ported.inference()(x)
                ported.eval()(x, y)
                ported.train()
        return losses

    start = ported.state_dict()
    ported.compile(*batches[0])
    ported.device_executor.rng_state = [5]
    expected = train(validates=False)

    ported.device_executor.rng_state = [5]
    same(train(validates=True), expected)


@pytest.mark.parametrize("training", [True, False])
def test_the_modes_of_the_modules_are_given_back(training, make_model, batches):
    model = make_model().train(training)
    model[1].eval()
    ported = to_ipu(model, nn.CrossEntropyLoss())

    ported.inference()(batches[0][0])

    assert [module.training for module in model] == [training, False, training, training]
    assert model.training is training


def test_evaluation_returns_output_and_loss_without_training(ported, make_model, batches, same):
    x, y = batches[0]
    plain = make_model().eval()

    output, loss = ported.eval()(x, y)

    same(output, plain(x).detach())
    same(loss, F.cross_entropy(plain(x), y).detach())
    same(ported.state_dict(), make_model().append(nn.Dropout()).state_dict())


def test_evaluation_without_labels_returns_the_output_alone(ported, make_model, batches, same):
    x, _ = batches[0]

    same(ported.eval()(x), make_model().eval()(x).detach())


def test_a_model_with_a_loss_of_its_own_evaluates_and_infers(batches, same):
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 3)

        def forward(self, x, labels=None):
            logits = self.body(x)
            return {"logits": logits} if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}

    model = WithLoss()
    x, y = batches[0]
    ported = to_ipu(model)
    ported(x, labels=y)

    evaluated, inferred = ported.eval()(x, labels=y), ported.inference()(x)

    same(evaluated["loss"], model(x, labels=y)["loss"].detach())
    same(inferred["logits"], model(x)["logits"].detach())


def test_compiling_while_evaluating_compiles_the_evaluation(ported, batches):
    ported.eval().compile(*batches[0])

    records = {record.name: record.num_compilations for record in ported.report().executors}
    assert records == {"training": 0, "evaluation": 1}


def test_inference_takes_a_batch_of_its_own_size(ported, batches, same):
    ported(*batches[0])
    x = torch.cat([x for x, _ in batches])

    assert ported.inference()(x).shape == (120, 3)


def test_inference_of_another_size_needs_its_own_executable_destroyed(ported, batches):
    infer = ported.inference()
    infer(batches[0][0])

    with pytest.raises(BatchError) as caught:
        infer(batches[0][0][:2])
    infer.destroy()
    output = infer(batches[0][0][:2])

    assert caught.value.code == "B001"
    assert any("ported.inference().destroy()" in line for line in caught.value.finding.help)
    assert output.shape == (2, 3)


def test_every_row_comes_back_whatever_the_output_mode_of_training(make_model, batches, same):
    options = PortOptions(device_iterations=3, accumulation=2, output_mode="sum")
    model = make_model()
    ported = to_ipu(model, nn.CrossEntropyLoss(), options=options)
    x, _ = batches[0]

    same(ported.inference()(x), make_model().eval()(x).detach())


def test_inference_is_compiled_once_however_often_it_is_asked_for(ported, batches):
    for x, _ in batches[:3]:
        ported.inference()(x)

    assert ported.report().executors[1].num_compilations == 1
    assert repr(ported.inference()).startswith("PortedInference of PortedModel(CPU simulator of an IPU)")


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_a_context_around_the_first_call_is_no_part_of_what_is_compiled(context, ported, batches, same):
    x, _ = batches[0]
    infer = ported.inference()
    with context():
        infer(x)

    for batch in batches[:3]:
        ported(*batch)
    output = infer(x)
    with context():
        again = infer(x)

    same(output, ported.model.eval()(x).detach())
    same(again, output)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_training_trains_in_any_context(context, make_model, batches, train_plainly, train_ported, same):
    plain, model = make_model(), make_model()
    expected = train_plainly(plain, torch.optim.Adam(plain.parameters()), batches)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.Adam(model.parameters()))

    with context():
        losses = train_ported(ported, batches[:10])
    losses += train_ported(ported, batches[10:])

    same(losses, expected)
    same(ported.state_dict(), plain.state_dict())


def test_inference_keeps_its_ported_model_alive(make_model, batches, same):
    x, _ = batches[0]

    infer = to_ipu(make_model(), nn.CrossEntropyLoss()).inference()

    same(infer(x), make_model().eval()(x).detach())


def test_labels_are_no_argument_of_inference_but_evaluate(ported, batches):
    output, loss = ported.inference()(*batches[0])

    assert output.shape == (6, 3)
    assert loss.shape == ()

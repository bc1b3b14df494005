"""A step that a device's call cannot make as the loop does is left as it is, with the reason."""

from __future__ import annotations

import pytest

from tests.convert.training_programs import HEAD, convert_idiomatic, read_reason, write_loop

FORWARD = ("output = model(x)", "loss = criterion(output, y)")
STEP = ("optimizer.zero_grad()", "loss.backward()", "optimizer.step()")
TWO = HEAD + "other = nn.Linear(4, 3)\nsecond = torch.optim.SGD(other.parameters(), lr=0.1)\n"

REFUSED = {
    "no backward pass was found": write_loop("output = model(x)"),
    "the model is called as `nets[0]`, which has no name to port": write_loop(
        "output = nets[0](x)", FORWARD[1], *STEP, head=HEAD + "nets = [model]\n"
    ),
    "the model is copied or saved as a whole, or its type is asked for, behind the place of the port": write_loop(
        *FORWARD, *STEP, "torch.save(model, 'whole.pt')"
    ),
    "the step is left out by what is known after the model's call": write_loop(
        *FORWARD, "if loss.isnan():", "    continue", *STEP
    ),
    "which weights are trained changes in the loop": write_loop(
        "if step == 2:", "    model.requires_grad_(True)", *FORWARD, *STEP
    ),
    "the loss reads `beta`, a number that changes from step to step": write_loop(
        "beta = min(1.0, step / 2)", FORWARD[0], "loss = criterion(output, y) * beta", *STEP
    ),
    "a step has several backward passes, and a device's call makes one": write_loop(
        *FORWARD, "optimizer.zero_grad()", "loss.backward()", "penalty = model(x).sum()", "penalty.backward()", STEP[2]
    ),
    "`backward` is called with arguments: its graph is used again behind the step": write_loop(
        *FORWARD, "optimizer.zero_grad()", "loss.backward(retain_graph=True)", "optimizer.step()"
    ),
    "the model is called several times in a step": write_loop(
        "output = model(x)", "loss = criterion(output, y) + model(x + 1).sum()", *STEP
    ),
    "the optimizer calls a closure in its step": write_loop(
        *FORWARD, "optimizer.zero_grad()", "loss.backward()", "optimizer.step(lambda: loss)"
    ),
    "2 optimizers make their steps in the loop": write_loop(*FORWARD, *STEP, "second.step()", head=TWO),
    "nothing clears the gradients, which are added up from step to step": write_loop(
        *FORWARD, "loss.backward()", "optimizer.step()"
    ),
    "the device has no `Adadelta`": write_loop(*FORWARD, *STEP, head=HEAD.replace("SGD", "Adadelta")),
    "the loop looks at gradients, which stay on the device": write_loop(*FORWARD, *STEP, "print(model.weight.grad)"),
    "`optimizer.step()` is not made in each turn": write_loop(
        *FORWARD, "optimizer.zero_grad()", "loss.backward()", "if step % 2:", "    optimizer.step()"
    ),
    "`optimizer.zero_grad()` stands where it has no effect on the step": write_loop(
        *FORWARD, "loss.backward()", "optimizer.zero_grad()", "optimizer.step()"
    ),
    "what `nn.utils.clip_grad_norm_` returns is used": write_loop(
        *FORWARD, *STEP[:2], "norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)", STEP[2]
    ),
    "`nn.utils.clip_grad_value_` clips as no device's optimizer does": write_loop(
        *FORWARD, *STEP[:2], "nn.utils.clip_grad_value_(model.parameters(), 1.0)", STEP[2]
    ),
    "the loss reads `step`, a number that changes from step to step": write_loop(
        "output = model(x)", "loss = criterion(output, y) * step", *STEP
    ),
    "`total` is added up before the model is called": write_loop(
        "output = model(x)",
        "total = total + criterion(output, y)",
        "optimizer.zero_grad()",
        "total.backward()",
        "optimizer.step()",
        head=HEAD + "total = 0\n",
    ),
    "`state` is None in the first step, and a tensor later": write_loop(
        "output = model(x, state)",
        "state = output.detach()",
        "loss = criterion(output, y)",
        *STEP,
        head=HEAD + "state = None\n",
    ),
    "the output is kept as `self.output`, which others may read later": HEAD
    + """
class Trainer:
    def fit(self):
        for step in range(4):
            x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
            optimizer.zero_grad()
            self.output = model(x)
            loss = criterion(self.output, y)
            loss.backward()
            optimizer.step()

Trainer().fit()
""",
    "the loop calls `eval()`, and no `train()` before the step": write_loop(*FORWARD, *STEP, "model.eval()"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_no_call_of_a_device_does_is_left_with_the_reason(tmp_path, reason):
    assert read_reason(tmp_path, REFUSED[reason]) == reason


def test_a_function_that_evaluates_and_lets_the_model_train_again_is_no_reason(tmp_path):
    evaluates = "def evaluate():\n    model.eval()\n    with torch.no_grad():\n        model(torch.ones(8, 4))\n"
    text = convert_idiomatic(
        tmp_path, write_loop(*FORWARD, *STEP, "evaluate()", head=f"{HEAD}{evaluates}    model.train()\n")
    )

    assert "model = to_ipu(" in text


def test_clipping_behind_a_test_of_its_own_is_handed_over_with_the_test(tmp_path):
    text = convert_idiomatic(
        tmp_path,
        write_loop(
            *FORWARD,
            *STEP[:2],
            "if limit > 0:",
            "    nn.utils.clip_grad_norm_(model.parameters(), limit)",
            STEP[2],
            head=HEAD + "limit = 0.5\n",
        ),
    )
    assert "max_grad_norm=limit if limit > 0 else None," in text


def test_an_optimizer_that_the_command_line_names_is_left_to_the_proof(tmp_path):
    head = HEAD.replace("torch.optim.SGD(", "getattr(torch.optim, name)(").replace("model =", "name = input()\nmodel =")
    assert "optimizer=optimizer" in convert_idiomatic(tmp_path, write_loop(*FORWARD, *STEP, head=head))

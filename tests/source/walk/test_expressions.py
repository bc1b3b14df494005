"""Expressions: what each may be."""

from __future__ import annotations

from typing import Set

import pytest

from porting.source import Facts, Kind

START = """
import torch
from torch import nn
net = nn.Linear(3, 2)
criterion = nn.MSELoss()
x = torch.zeros(2, 3)
out = net(x)
loss = criterion(out, x)
"""


def kinds_of(facts: Facts) -> Set[str]:
    (call,) = [call for call in facts.calls if call.name == "show"]
    return {one.kind.value for one in call.arguments[0]} if call.arguments else set()


@pytest.mark.parametrize(
    ("expression", "kinds"),
    [
        ("loss / 3", {"loss"}),
        ("-loss", {"loss"}),
        ("out + x", {"output"}),
        ("out == x", {"output"}),
        ("out @ x", {"output"}),
        ("loss if a else out", {"loss", "output"}),
        ("loss or out", {"loss", "output"}),
        ("[loss, out][0]", {"loss"}),
        ("(loss, out)[-1]", {"output"}),
        ("[loss, out][i]", {"loss", "output"}),
        ("{'a': loss, 'b': out}['a']", {"loss"}),
        ("{'a': loss, **{'b': out}}['b']", {"output"}),
        ("dict(a=loss).get('a')", {"loss"}),
        ("[loss] + [out]", {"loss", "output"}),
        ("[f for f in [out]]", {"output"}),
        ("{k: v for k, v in {'a': loss}.items()}", {"loss"}),
        ("sum(v for v in [loss])", {"loss"}),
        ("list(map(lambda o: o, [out]))", {"output"}),
        ("out[0, :3]", {"output"}),
        ("out.T", {"output"}),
        ("(y := loss)", {"loss"}),
        ("out.shape", set()),
        ("out.size(0)", set()),
        ("out.device", set()),
        ("out is None", set()),
        ("not loss", set()),
        ("len(out)", set()),
        ("float(loss)", set()),
        ("f'{loss}'", set()),
        ("loss.item() / 3", set()),
        ("1 + 2", set()),
        ("net.weight", {"parameters"}),
        ("net.training", set()),
        ("nn.Sequential(net, net)[0]", {"module"}),
    ],
)
def test_what_an_expression_may_be(facts_of, expression, kinds):
    assert kinds_of(facts_of(START + f"show({expression})\n")) == kinds


def test_what_a_transformer_returns_holds_its_loss(facts_of):
    facts = facts_of(
        """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("gpt2")
        outputs = model(ids, labels=ids)
        show(outputs.loss)
        outputs["loss"].backward()
        """
    )

    assert kinds_of(facts) == {"loss"}
    assert all(call.is_on(Kind.LOSS) for call in facts.calls if call.is_method("backward"))


def test_a_name_of_an_output_tells_the_loss(facts_of):
    facts = facts_of(
        START + "from gone import make\nmodel = make()\nmodel.eval()\nlogits, loss = model(x)\nshow(loss)\n"
    )

    assert kinds_of(facts) == {"loss"}

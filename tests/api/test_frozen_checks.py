"""What Python decides in `forward` is told: random numbers, counters, the time, and attributes changed later."""

from __future__ import annotations

import itertools
import linecache
import random
import time
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from porting import PortOptions, fit, to_ipu
from porting.capture import second_run
from porting.diagnostics import PortingWarning
from porting.simulator._compile import program

CALLS = 0


class Model(nn.Linear):
    """A layer whose output `change` works on."""

    calls_of_class = 0

    def __init__(self, change):
        super().__init__(4, 3)
        self.change, self.calls, self.scale, self.seen = change, 0, 1.0, []
        self.rng = random.Random(0)

    def forward(self, x):
        return self.change(self, super().forward(x))


def batch():
    return torch.ones(6, 4), torch.zeros(6, dtype=torch.int64)


def findings_of(change, *, num_calls=1, model=None, **options):
    ported = to_ipu(model or Model(change), nn.CrossEntropyLoss(), device="sim", options=PortOptions(**options))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _call in range(num_calls):
            ported(*batch())
    found = [warning.message.finding for warning in caught if isinstance(warning.message, PortingWarning)]
    return [finding for finding in found if finding.code == "C020"]


def with_counter(model, h):
    model.calls += 1
    return h * model.calls


def with_global(_model, h):
    global CALLS
    CALLS += 1
    return h * CALLS


def with_counter_of_class(model, h):
    type(model).calls_of_class += 1
    return h * model.calls_of_class


def with_silent_counter(model, h):
    model.calls += 1
    return h


def with_list(model, h):
    model.seen.append(1)
    return h


def with_branch(_model, h):
    return h.tanh() if time.perf_counter_ns() % 2 else h.relu()


CHANGES = {
    "python": lambda _model, h: h * random.random(),
    "numpy": lambda _model, h: h * float(np.random.rand()),
    "array": lambda _model, h: h + torch.tensor(np.random.rand(3), dtype=torch.float32).to("ipu"),
    "time": lambda _model, h: h + time.perf_counter(),
    "own generator": lambda model, h: h * model.rng.random(),
    "counter": with_counter,
    "counter of the class": with_counter_of_class,
    "counter that nothing uses": with_silent_counter,
    "list that grows": with_list,
    "global": with_global,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_python_decides_anew_each_time_is_a_finding(change):
    assert len(findings_of(change)) == 1


def test_the_finding_shows_the_line_and_both_values():
    (finding,) = findings_of(lambda _model, h: h * random.random())

    assert finding.place.file == __file__
    assert "Python computes a value in `forward`" in finding.message
    assert "the next time it is 0." in finding.notes[0]


def test_a_counter_is_named_with_the_cure():
    (finding,) = findings_of(with_counter)

    assert "`forward` changes `calls`" in finding.message
    assert "register_buffer('calls'" in finding.help[0]
    assert finding.place.file == __file__


def test_a_branch_that_python_takes_is_a_finding(monkeypatch):
    turns = iter(range(100))
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(turns))

    (finding,) = findings_of(with_branch)

    assert "computes something else when it runs again" in finding.message


ALTERNATING = {
    "number": lambda turn, h: h * (turn + 1),
    "operator": lambda turn, h: h.tanh() if turn else h.relu(),
    "one more": lambda turn, h: h.tanh().relu() if turn else h.tanh(),
    "tensor": lambda turn, h: (h.tanh(), h.relu())[turn] * 2,
    "constant": lambda turn, h: h * torch.tensor(float(turn)),
    "returned": lambda turn, h: (h.tanh(), h.relu())[turn],
}


@pytest.mark.parametrize("change", ALTERNATING.values(), ids=ALTERNATING)
def test_what_only_every_other_run_does_is_a_finding(change):
    # an iterator moves on for good: a third run does what the first did
    turns = itertools.cycle([0, 1])

    assert len(findings_of(lambda _model, h: change(next(turns), h))) == 1


def test_a_branch_that_is_left_at_random_is_a_finding():
    seen = set()
    for seed in range(20):
        random.seed(seed)
        found = findings_of(lambda _model, h: h.tanh() if random.random() < 0.5 else h.relu())
        seen.add(len(found))

    assert seen == {0, 1}


def test_a_forward_that_does_the_same_is_captured_once(monkeypatch):
    captures, capture = [], program.capture_step
    monkeypatch.setattr(program, "capture_step", lambda *args, **kw: captures.append(args) or capture(*args, **kw))

    assert findings_of(lambda _model, h: nn.functional.dropout(h).relu() * torch.rand(3, device=h.device)) == []
    assert len(captures) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda _model, h: h,
        lambda _model, h: nn.functional.dropout(h),
        lambda _model, h: h * torch.rand(3, device=h.device),
        lambda model, h: h * model.scale,
        lambda model, h: setattr(model, "cached", h.shape[1]) or h,
        lambda _model, h: h * float("nan"),
    ],
    ids=["plain", "dropout", "device's numbers", "attribute", "cache", "nan"],
)
def test_what_is_the_same_each_time_is_none(change):
    assert findings_of(change) == []


@pytest.mark.parametrize(("model", "num_runs"), [(nn.Linear(4, 3), 0), (Model(lambda _model, h: h), 1)])
def test_only_code_of_the_users_runs_again(monkeypatch, model, num_runs):
    runs, run_again = [], second_run.without_trace
    monkeypatch.setattr(second_run, "without_trace", lambda modules: runs.append(modules) or run_again(modules))

    findings_of(None, model=model)

    assert len(runs) == num_runs


@pytest.mark.parametrize("name", ["python", "counter", "counter that nothing uses"])
def test_the_options_allow_it(name):
    named = "Model" if name == "python" else "calls"

    assert findings_of(CHANGES[name], frozen="allow") == []
    assert findings_of(CHANGES[name], frozen=[named]) == []
    assert len(findings_of(CHANGES[name], frozen=["another"])) == 1


def test_the_second_capture_leaves_no_trace(capsys):
    def change(model, h):
        print("forward runs")  # noqa: T201 - what users do
        warnings.warn("forward warns", UserWarning, stacklevel=1)
        with_list(model, h)
        with_global(model, h)
        with_counter_of_class(model, h)
        return with_counter(model, h) * random.random() * float(np.random.rand()) * model.rng.random()

    def state_after(frozen):
        global CALLS
        CALLS = Model.calls_of_class = 0
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        model = Model(change)
        findings_of(change, model=model, frozen=frozen)
        drawn = random.random(), np.random.rand(), torch.rand(()).item(), model.rng.random()
        printed = capsys.readouterr().out.count("forward runs")
        return model.calls, model.seen, Model.calls_of_class, CALLS, sorted(vars(model)), drawn, printed

    assert state_after("check") == state_after("allow")


def test_a_forward_that_fails_the_second_time_is_a_finding():
    def once(model, h):
        if model.seen:
            raise RuntimeError("only once")
        model.seen.append(1)
        return h

    (finding,) = findings_of(once)

    assert "fails when it runs again" in finding.message or "changes `seen`" in finding.message


# -- attributes that change later --------------------------------------------------------------------------------------


class Scaled(nn.Module):
    kind = "tanh"

    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(4, 3), nn.Dropout(0.0)
        self.scale, self.epoch, self.sizes = 1.0, 0, (1, 2)

    def forward(self, x):
        h = self.drop(self.linear(x)) * self.scale * self.sizes[0]
        return h.tanh() if self.kind == "tanh" else h


def change_after_a_call(change, loss=None, **options):
    model = Scaled()
    ported = to_ipu(model, loss or nn.CrossEntropyLoss(), device="sim", options=PortOptions(**options))
    ported(*batch())
    change(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ported(*batch())
        ported(*batch())
    return [warning.message.finding for warning in caught if isinstance(warning.message, PortingWarning)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("scale", 0), ("scale", torch.ones(2)), ("drop.p", 0.5), ("sizes", (3, 2)), ("kind", "relu")],
)
def test_an_attribute_that_forward_has_read_and_that_changes_is_told_once(name, value):
    def change(model):
        path, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(path), attribute, value)

    (finding,) = change_after_a_call(change)

    assert finding.code == "C020"
    assert finding.message.startswith(f"`{name}` is {value!r} now, and ")


def test_a_setting_of_the_loss_is_watched():
    loss = nn.CrossEntropyLoss()

    (finding,) = change_after_a_call(lambda _model: setattr(loss, "label_smoothing", 0.5), loss)

    assert finding.message == "`loss.label_smoothing` is 0.5 now, and 0.0 in the compiled step"


@pytest.mark.parametrize(
    "change",
    [lambda model: setattr(model, "epoch", 3), lambda model: setattr(model, "scale", 1), lambda model: None],
    ids=["never read", "same value", "nothing"],
)
def test_an_attribute_that_makes_no_difference_is_not_told(change):
    assert change_after_a_call(change) == []


@pytest.mark.parametrize("frozen", ["allow", ["scale"]])
def test_an_attribute_may_be_frozen(frozen):
    assert change_after_a_call(lambda model: setattr(model, "scale", 0.0), frozen=frozen) == []


def test_a_model_of_many_modules_is_looked_at_in_turns():
    model = nn.Sequential(nn.Linear(4, 3), *(nn.Dropout(0.0) for _ in range(30)))
    ported = to_ipu(model, nn.CrossEntropyLoss(), device="sim")
    ported(*batch())
    model[30].p = 0.5

    calls = [batch() for _ in range(8)]
    with pytest.warns(PortingWarning, match=r"`30\.p` is 0\.5 now"):
        fit(ported, calls, epochs=1, progress=False)


def test_modules_are_read_as_before_after_a_compilation():
    ported = to_ipu(Scaled(), nn.CrossEntropyLoss(), device="sim")
    ported(*batch())

    assert "__getattribute__" not in vars(nn.Module)


def test_the_report_has_what_was_found():
    ported = to_ipu(Model(with_counter), nn.CrossEntropyLoss(), device="sim")

    with pytest.warns(PortingWarning):
        ported(*batch())

    assert "warning[C020]: `forward` changes `calls`" in str(ported.report())


class Meter:
    def __init__(self):
        self.total = 0

    def add(self):
        self.total += 1  # total


class Counting(nn.Linear):
    runs = 0

    def __init__(self):
        super().__init__(4, 3)
        self.meter, self.names, self.table = Meter(), [], {}

    def forward(self, x):
        self.meter.add()
        self.names.append("a")  # names
        self.table[len(self.names)] = 1  # table
        Counting.runs += 1  # runs
        return super().forward(x)


def test_counters_and_containers_have_the_line_that_changes_them():
    found = findings_of(None, model=nn.Sequential(Counting()))

    lines = {f.message.split("`")[3].rpartition(".")[2]: linecache.getline(f.place.file, f.place.line) for f in found}
    assert set(lines) == {"total", "names", "table", "runs"}
    assert all(line.rstrip().endswith(f"# {name}") for name, line in lines.items())

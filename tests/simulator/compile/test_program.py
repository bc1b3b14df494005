"""How an executor gets its executable, and what survives when that fails or when its module is executed again."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator._device.session import DeviceSession


class TakesDict(nn.Module):
    def forward(self, x, settings):
        return x * settings["factor"]


def test_any_dictionary_is_warned_of_while_compiling_only(poptorch, caplog):
    executor = poptorch.inferenceModel(TakesDict())

    for _ in range(2):
        executor(torch.ones(1), {"factor": 2})

    assert caplog.messages == [
        "Dicts as inputs only have partial support, they can be accessed using literal keys, but full Python "
        "functionality is not enabled. Consider changing dict inputs to tuple."
    ]


def test_executors_can_be_compiled_by_several_threads(poptorch):
    results = {}

    def run(number):
        executor = poptorch.inferenceModel(nn.Linear(number, 2))
        results[number] = executor(torch.ones(1, number)).shape

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {number: (1, 2) for number in range(1, 5)}


class Countdown(nn.Module):
    """A weight that each step of SGD with a learning rate of 1 makes smaller by 1."""

    def __init__(self, start=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((1,), float(start)))

    def forward(self, x):
        return nn.functional.l1_loss(x * self.weight, torch.zeros_like(x))


def counting_down(poptorch, model, options=None):
    return poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=1.0))


def test_threads_that_share_an_executor_compile_it_once_and_lose_no_step(poptorch):
    traces = []
    handle = poptorch.registerPreCompileHook(lambda: traces.append(1))
    model = Countdown(start=100)
    executor = counting_down(poptorch, model)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: executor(torch.ones(1)), range(40)))
    handle.remove()

    assert traces == [1]
    assert model.weight.item() == 60


def test_the_weights_are_sent_once_by_threads_that_meet_a_model_at_its_first_use(regression, batch, monkeypatch):
    uploads, send = [], DeviceSession.send_weights

    def send_slowly(session):
        uploads.append(session)
        threading.Event().wait(0.05)
        send(session)

    monkeypatch.setattr(DeviceSession, "send_weights", send_slowly)
    executor = simulator.trainingModel(regression)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: executor(*batch), range(3)))

    assert uploads == [executor.device_session]


def test_a_thread_may_look_at_the_weights_while_another_one_trains(poptorch):
    model = Countdown(start=50)
    executor = counting_down(poptorch, model)
    executor.compile(torch.ones(1))

    with ThreadPoolExecutor(2) as pool:
        training = pool.submit(lambda: [executor(torch.ones(1)) for _ in range(50)])
        looks = [model.weight.item() for _ in range(50)]
        training.result()

    assert looks == sorted(looks, reverse=True)
    assert model.weight.item() == 0


def test_a_thread_may_detach_and_attach_while_another_one_trains(poptorch):
    model = Countdown(start=20)
    executor = counting_down(poptorch, model)
    executor.compile(torch.ones(1))

    def detach_and_attach():
        for _ in range(20):
            executor.detachFromDevice()
            threading.Event().wait(0.001)
            if not executor.isAttachedToDevice():
                with contextlib.suppress(poptorch.Error):  # the other thread was faster
                    executor.attachToDevice()

    with ThreadPoolExecutor(2) as pool:
        training = pool.submit(lambda: [executor(torch.ones(1)) for _ in range(20)])
        pool.submit(detach_and_attach).result()
        training.result()

    assert model.weight.item() == 0


def test_an_executor_that_failed_to_compile_can_be_copied(poptorch):
    executor = poptorch.inferenceModel(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        executor(torch.ones(1, 3))

    duplicate = copy.deepcopy(executor)

    assert duplicate(torch.ones(1, 2)).shape == (1, 2)


def test_several_executors_share_a_model(poptorch, regression, batch):
    training = poptorch.trainingModel(regression)
    inferences = [poptorch.inferenceModel(training) for _ in range(2)]
    training(*batch)

    outputs = [inference(*batch)[0] for inference in inferences]
    training(*batch)
    later = [inference(*batch)[0] for inference in inferences]

    assert torch.equal(*outputs)
    assert torch.equal(*later)
    assert not torch.equal(outputs[0], later[0])


def test_a_file_that_cannot_be_written_leaves_the_executor_usable(poptorch, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", str(tmp_path / "file" / "graph"))
    executor = poptorch.inferenceModel(nn.ReLU())

    with pytest.raises(OSError, match="file"):
        executor(torch.ones(1))
    monkeypatch.delenv("POPTORCH_EXPORT_PROTO_FILE")

    assert executor(torch.ones(1)).item() == 1


@pytest.fixture
def executed_again():
    """Execute the executor's module a second time, in place, as one library does; undo it afterwards."""
    module = sys.modules["porting.simulator._poplar_executor"]
    saved = dict(module.__dict__)
    module.__spec__.loader.exec_module(module)
    yield module
    module.__dict__.update(saved)


def test_what_belongs_to_all_executors_survives_executing_the_module_again(executed_again):
    assert executed_again.PoplarExecutor is not simulator.PoplarExecutor
    assert executed_again.PoplarExecutor._precompile_hooks is simulator.PoplarExecutor._precompile_hooks
    assert executed_again.PoplarExecutor._postcompile_hooks is simulator.PoplarExecutor._postcompile_hooks


def test_executors_of_both_classes_are_executors(executed_again, regression, batch):
    again = executed_again.PoplarExecutor(
        regression, None, True, "3.4", optimizer=torch.optim.SGD(regression.parameters(), lr=0.1), user_model=regression
    )
    again(*batch)

    inference = simulator.inferenceModel(again)

    assert inference(*batch)[1].isfinite()


def test_a_copy_of_the_module_works_beside_it(regression, batch):
    spec = importlib.util.find_spec("porting.simulator._poplar_executor")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    executor = module.PoplarExecutor(regression, None, False, "3.4")

    assert executor(*batch)[1].isfinite()


def test_anchors_without_a_mode_get_that_of_the_outputs(poptorch):
    options = poptorch.Options().deviceIterations(4).outputMode(poptorch.OutputMode.EveryN, 2)
    options.anchorTensor("inherits", "a")
    options.anchorTensor("own", "b", poptorch.OutputMode.Sum)

    executor = poptorch.inferenceModel(nn.ReLU(), options)

    anchors = executor.options.anchored_tensors
    assert anchors["inherits"][2:] == [poptorch.OutputMode.EveryN, 2]
    assert anchors["own"][2:] == [poptorch.OutputMode.Sum, 1]
    assert options.anchored_tensors["inherits"][2] is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_may_look_at_weights_while_another_thread_is_in_a_call(poptorch):
    model = nn.Linear(2, 2)
    executor = poptorch.inferenceModel(model)
    executor.compile(torch.ones(1, 2))
    is_held, may_go_on = threading.Event(), threading.Event()

    def hold():
        with executor._lock:
            is_held.set()
            may_go_on.wait(240)

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait(240)
    child = os.fork()
    if child == 0:
        acquired = executor._lock.acquire(timeout=240)
        os._exit(0 if acquired else 1)

    _pid, status = os.waitpid(child, 0)
    may_go_on.set()
    holder.join()

    assert status == 0


@pytest.fixture(autouse=True)
def _no_engine_options(monkeypatch):
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS", raising=False)


def test_a_profile_is_named_after_what_the_model_is_for(poptorch, tmp_path, regression, batch):
    options = poptorch.Options().enableProfiling(str(tmp_path))

    poptorch.trainingModel(regression, options).compile(*batch)
    poptorch.inferenceModel(nn.ReLU(), options).compile(torch.ones(1))

    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*")) == [
        "inference/profile.pop",
        "training/profile.pop",
    ]


def test_a_profile_is_named_after_the_model(poptorch, tmp_path):
    options = poptorch.Options().enableProfiling(str(tmp_path)).modelName("net")

    poptorch.inferenceModel(nn.ReLU(), options).compile(torch.ones(1))

    assert (tmp_path / "net" / "profile.pop").is_file()


def test_a_profile_says_that_it_is_the_simulators(poptorch, tmp_path):
    poptorch.inferenceModel(nn.ReLU(), poptorch.Options().enableProfiling(str(tmp_path))).compile(torch.ones(1))

    assert b"porting.simulator" in (tmp_path / "inference" / "profile.pop").read_bytes()


def test_nothing_is_written_without_profiling(poptorch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    poptorch.inferenceModel(nn.ReLU()).compile(torch.ones(1))

    assert list(tmp_path.iterdir()) == []


def test_the_environment_has_the_last_word(poptorch, tmp_path, monkeypatch, caplog):
    engine = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "b")}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(engine))

    options = poptorch.Options().enableProfiling(str(tmp_path / "a"))
    poptorch.inferenceModel(nn.ReLU(), options).compile(torch.ones(1))

    assert (tmp_path / "b" / "inference" / "profile.pop").is_file()
    assert not (tmp_path / "a").exists()
    assert "overridden by environment variable" in caplog.text


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ("[1]", "must be a JSON object")])
def test_other_engine_options_than_json_are_refused(poptorch, monkeypatch, text, message):
    executor = poptorch.inferenceModel(nn.ReLU())
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)

    with pytest.raises(poptorch.Error, match=f"POPLAR_ENGINE_OPTIONS {message}"):
        executor.compile(torch.ones(1))

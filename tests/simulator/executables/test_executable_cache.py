"""The folder of executables: a file for each graph, and a lock for the processes of a distributed run."""

from __future__ import annotations

import hashlib
import logging
import threading

import pytest
import torch
from torch import nn

from porting.simulator._executables.executable_cache import find_cache_folder, lock_compilation


class Scale(nn.Module):
    def __init__(self, factor=2):
        super().__init__()
        self.factor = factor
        self.constant = torch.full((1,), 1.0)

    def forward(self, x):
        return x * self.factor + self.constant.to(x.device)


def caching(poptorch, folder):
    return poptorch.Options().enableExecutableCaching(str(folder))


# -- one file for each graph


def test_compiling_writes_exactly_one_file(poptorch, tmp_path, debug_log):
    poptorch.inferenceModel(Scale(), caching(poptorch, tmp_path / "a" / "b")).compile(torch.ones(2))

    assert len(list((tmp_path / "a" / "b").iterdir())) == 1
    assert "set enableEngineCaching to value true" in debug_log()


def test_an_equal_graph_has_the_same_file(poptorch, tmp_path):
    for _ in range(2):
        poptorch.inferenceModel(Scale(), caching(poptorch, tmp_path)).compile(torch.ones(2))

    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda poptorch: (Scale(3), poptorch.Options(), 2),
        lambda poptorch: (Scale(), poptorch.Options(), 4),
        lambda poptorch: (Scale(), poptorch.Options().outputMode(poptorch.OutputMode.Final), 2),
    ],
    ids=["constant", "shape", "output mode"],
)
def test_another_graph_has_another_file(poptorch, tmp_path, change):
    poptorch.inferenceModel(Scale(), caching(poptorch, tmp_path)).compile(torch.ones(2))
    model, options, rows = change(poptorch)

    poptorch.inferenceModel(model, options.enableExecutableCaching(str(tmp_path))).compile(torch.ones(rows))

    assert len(list(tmp_path.iterdir())) == 2


def test_the_values_of_constants_count(poptorch, tmp_path):
    other = Scale()
    other.constant = torch.full((1,), 5.0)

    for model in (Scale(), other):
        poptorch.inferenceModel(model, caching(poptorch, tmp_path)).compile(torch.ones(2))

    assert len(list(tmp_path.iterdir())) == 2


def test_weights_do_not_count(poptorch, tmp_path):
    for _ in range(2):
        poptorch.inferenceModel(nn.Linear(2, 2), caching(poptorch, tmp_path)).compile(torch.ones(2, 2))

    assert len(list(tmp_path.iterdir())) == 1


def test_a_damaged_file_is_written_again(poptorch, tmp_path):
    poptorch.inferenceModel(Scale(), caching(poptorch, tmp_path)).compile(torch.ones(2))
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:50])

    poptorch.inferenceModel(Scale(), caching(poptorch, tmp_path)).compile(torch.ones(2))

    assert file.read_bytes() == whole


def test_the_environment_switches_caching_on(poptorch, tmp_path, monkeypatch):
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path))

    poptorch.inferenceModel(Scale()).compile(torch.ones(2))

    assert len(list(tmp_path.iterdir())) == 1


def test_caching_can_be_switched_off_again(poptorch, tmp_path):
    options = caching(poptorch, tmp_path).enableExecutableCaching(None)

    poptorch.inferenceModel(Scale(), options).compile(torch.ones(2))

    assert find_cache_folder(options) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", ["", "/deeper"])
def test_a_folder_that_cannot_be_written_to_is_refused(poptorch, tmp_path, inside):
    (tmp_path / "file").write_text("")
    executor = poptorch.inferenceModel(Scale(), caching(poptorch, f"{tmp_path}/file{inside}"))

    with pytest.raises(AssertionError, match=f"Cache folder {tmp_path}/file{inside} is not writable"):
        executor.compile(torch.ones(2))

    assert not executor.isCompiled()


def test_the_ipu_model_does_not_cache_and_says_so(poptorch, tmp_path, capsys):
    options = caching(poptorch, tmp_path).useIpuModel(True)

    poptorch.inferenceModel(Scale(), options).compile(torch.ones(2))

    assert "enableExecutableCaching doesn't work with the IPU model" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# -- one process after the other


def distributed(poptorch, folder, process, num_processes=2):
    options = caching(poptorch, folder) if folder is not None else poptorch.Options()
    options.Distributed.configureProcessId(process, num_processes)
    return options


def test_a_single_process_takes_no_lock(poptorch, tmp_path):
    with lock_compilation(Scale(), caching(poptorch, tmp_path)) as is_first:
        assert not is_first
        assert list(tmp_path.iterdir()) == []


def test_the_lock_is_named_after_the_model(poptorch, tmp_path):
    model = nn.Linear(2, 2)
    name = hashlib.md5(repr(model).encode()).hexdigest() + ".lock"

    with lock_compilation(model, distributed(poptorch, tmp_path, 0)):
        assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_first_process_compiles_and_the_last_one_removes_the_lock(poptorch, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, logger="poptorch::python")
    firsts = []

    for process in (1, 0):
        with lock_compilation(Scale(), distributed(poptorch, tmp_path, process)) as is_first:
            firsts.append(is_first)

    assert firsts == [True, False]
    assert list(tmp_path.iterdir()) == []
    assert caplog.messages == [
        "Executable cache file locked by process 1 (pos 1/2)",
        "Process 1 released the cache lock",
        "Executable cache file locked by process 0 (pos 2/2)",
        "Process 0 released the cache lock",
    ]


def test_the_next_round_starts_anew(poptorch, tmp_path):
    firsts = []
    for process in (0, 1, 0, 1):
        with lock_compilation(Scale(), distributed(poptorch, tmp_path, process)) as is_first:
            firsts.append(is_first)

    assert firsts == [True, False, True, False]


def test_only_one_is_inside_at_a_time(poptorch, tmp_path):
    inside, most = [], []

    def enter(process):
        with lock_compilation(Scale(), distributed(poptorch, tmp_path, process, 4)):
            inside.append(process)
            most.append(len(inside))
            threading.Event().wait(0.01)
            inside.remove(process)

    threads = [threading.Thread(target=enter, args=(process,)) for process in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == [1, 1, 1, 1]
    assert list(tmp_path.iterdir()) == []


def test_a_failed_compilation_gives_the_lock_back(poptorch, tmp_path):
    with pytest.raises(ZeroDivisionError):
        with lock_compilation(Scale(), distributed(poptorch, tmp_path, 0)):
            raise ZeroDivisionError

    with lock_compilation(Scale(), distributed(poptorch, tmp_path, 1)) as is_first:
        assert not is_first


def test_several_processes_without_a_cache_are_told(poptorch, caplog):
    with lock_compilation(Scale(), distributed(poptorch, None, 0)):
        pass

    assert caplog.messages == [
        "Use poptorch.Options.enableExecutableCaching() to avoid compiling the model once per process"
    ]

"""Programs that were written for PopTorch run unmodified under `porting run`, in one process and in several."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAMS = Path(__file__).parent / "programs"
# what a launcher or the user may have set; unbuffered, lines of two processes would be torn apart
NOT_INHERITED = ("OMPI_", "POPDIST_", "PORTING_", "POPTORCH_", "PYTHONUNBUFFERED")

# some programs are several processes
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("programs_have_simulator")]


def porting_run(*words, status=0, **variables):
    """Run a program in its own folder and return what it printed and said; other ends than `status` fail."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    result = subprocess.run(
        [sys.executable, "-m", "porting", "run", *words],
        cwd=PROGRAMS,
        env={**inherited, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result


def lines_of(*words, **variables):
    return porting_run(*words, **variables).stdout.splitlines()


def records_of(*words, **variables):
    """Read the JSON record that each instance of a program prints, in the order of the instances.

    Instances share the output: the end of a line may come after another instance's record.
    """
    text, records = porting_run(*words, **variables).stdout.strip(), []
    while text:
        record, end = json.JSONDecoder().raw_decode(text)
        records.append(record)
        text = text[end:].lstrip()
    return sorted(records, key=lambda record: record["index"])


# -- one process -----------------------------------------------------------------------------------------------------


def test_a_network_learns_digits():
    (line,) = lines_of("mnist_training.py", "--epochs", "4")

    assert float(line.split()[-1].rstrip("%")) > 90.0


def test_a_program_that_wants_hardware_runs_on_the_simulated():
    architecture, shape = lines_of("hardware_check.py")

    assert architecture.startswith("IPU architecture ")
    assert shape == "(1, 2)"


def test_a_program_that_wants_hardware_leaves_quietly_where_the_simulated_does_not_count():
    result = porting_run("hardware_check.py", PORTING_SIM_HARDWARE="0")

    assert result.stdout == "no IPU: nothing to do\n"
    assert result.stderr == "simulated: poptorch is porting.simulator on this CPU; no IPU took part\n"


def test_a_model_is_split_over_devices():
    assert lines_of("pipelined_inference.py") == ["pipelined (8, 2)"]


def test_a_language_model_learns_on_four_devices():
    assert lines_of("transformer_pretraining.py") == ["learnt (4, 6, 20)"]


def test_every_way_of_splitting_a_model_trains_alike():
    assert lines_of("pipelining_strategies.py") == [
        "WithBlocks trains alike in 10 ways",
        "WithStarts trains alike in 10 ways",
        "WithHooks trains alike in 10 ways",
    ]


def test_models_learn_in_every_mixture_of_precisions():
    lines = lines_of("half_precision.py")

    assert len(lines) == 8
    assert {tuple(line.split()[3:]) for line in lines} == {("True", "1.0")}


def test_weights_sharded_over_replicas_train_as_those_of_one_device():
    assert lines_of("tensor_parallelism.py") == [
        "weights Consecutive, inputs Orthogonal: equal",
        "weights Orthogonal, inputs Consecutive: equal",
    ]


def test_operators_of_the_device_compute_what_torch_computes():
    result = porting_run("device_operators.py")

    assert result.stdout.splitlines() == [
        "for_loop 1024.0 1023.0",
        "cond [11.0, 22.0] [3.0, 6.0]",
        "CPU equal",
        "custom_op True True",
        "MultiConv equal",
        "annotations equal",
        "dynamic [[3.0, 4.0]] [[0.0, 1.0, 2.0, 30.0, 40.0, 5.0, 6.0, 7.0]]",
    ]
    assert "rows: (\n (0.000, 1.000, 2.000, 3.000)\n)\n" in result.stderr


def test_files_of_executables_run_in_other_processes():
    assert lines_of("saved_executables.py") == ["offline True", "resumed True", "bare True", "cached 1"]


def test_training_resumes_as_without_a_break():
    result = porting_run("resumed_training.py")

    assert result.stdout.splitlines() == [
        "trained 3 epochs, accuracy above 90%: True, learning rate 0.005",
        "resumed to 5 epochs, as without a break: True",
    ]
    assert "Ignoring unexpected" not in result.stderr
    assert "UserWarning" not in result.stderr


def test_executors_of_a_training_framework_attach_in_turn():
    assert lines_of("executors_of_a_trainer.py") == [
        "1 replicas, accumulation 1: True True",
        "2 replicas, accumulation 2: True True",
    ]


def test_a_library_of_pretrained_models_finds_the_private_names_it_uses():
    assert lines_of("parallelized_trainer.py") == [
        "learnt True",
        "unwrapped ParallelizedClassifier Parameter",
        "wrapped PoptorchParallelizedClassifier",
        "evaluated 50 True",
        "subclassed 1",
        "executed again PoplarExecutor",
    ]


def test_text_is_generated_with_loops_calls_and_caches():
    assert lines_of("text_generation.py") == [
        "loop on the device True",
        "call for each token True",
        "cache in buffers True",
    ]


def test_models_of_many_kinds_compute_as_on_the_host():
    lines = lines_of("models_of_many_kinds.py")

    assert len(lines) == 7
    assert all(line.endswith(" equal") for line in lines)


def test_structures_of_the_programs_own_are_arguments():
    assert lines_of("custom_arguments.py") == ["Pair [0.0, 0.0] [1.0, 1.0]"]


def test_processes_of_every_kind_have_the_vendors_name():
    assert lines_of("loader_processes.py") == [
        "spawn 3",
        "forkserver 3",
        "fork 3",
        "workers [[0.0, 1.0, 4.0, 9.0], [16.0, 25.0, 36.0, 49.0]]",
        "child porting.simulator.options",
    ]


def test_batches_are_loaded_in_another_process():
    assert lines_of("asynchronous_loading.py") == ["total 264.0"]


def test_companions_are_there_and_say_what_they_are():
    result = porting_run("companion_modules.py")

    assert result.stdout == "0 1 (1, 2)\n"
    for name in ("examples_utils", "horovod", "libpvti", "popart"):
        assert result.stderr.count(f"`{name}` is not installed; a stand-in, porting.simulator.companions.{name}") == 1


# -- several processes -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained_alone(simulator_server):
    """Train in one process with two replicas; losses are laid out as [step][accumulation x replica]."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", simulator_server.python)
        (record,) = records_of("popdist_training.py", "--replicas", "2")
    return record


@pytest.mark.parametrize(
    "launcher",
    [["--num-instances", "2"], ["torchrun", "--nproc-per-node", "2"]],
    ids=["porting", "torchrun"],
)
def test_two_instances_train_as_one_process_with_two_replicas(trained_alone, launcher):
    first, second = records_of(*launcher, "popdist_training.py")

    assert first["weights"] == second["weights"]
    torch.testing.assert_close(torch.tensor(first["weights"]), torch.tensor(trained_alone["weights"]))
    losses = torch.tensor(trained_alone["losses"]).reshape(3, 2, 2)
    torch.testing.assert_close(torch.tensor(first["losses"]), losses[:, :, 0])
    torch.testing.assert_close(torch.tensor(second["losses"]), losses[:, :, 1])


def test_instances_with_several_replicas_each_train_as_one_process_with_all():
    (alone,) = records_of("popdist_training.py", "--replicas", "4", "--optimizer", "SGD")
    first, second = records_of(
        "--num-instances", "2", "--num-replicas", "4", "popdist_training.py", "--optimizer", "SGD"
    )

    assert first["weights"] == second["weights"]
    torch.testing.assert_close(torch.tensor(first["weights"]), torch.tensor(alone["weights"]))
    losses = torch.tensor(alone["losses"]).reshape(3, 2, 2, 2)
    torch.testing.assert_close(torch.tensor(first["losses"]).reshape(3, 2, 2), losses[:, :, 0])
    torch.testing.assert_close(torch.tensor(second["losses"]).reshape(3, 2, 2), losses[:, :, 1])


def test_weights_are_broadcast_before_training():
    first, second = records_of("--num-instances", "2", "broadcast_weights.py")

    assert first["own"] != second["own"]
    assert first["weights"] == second["weights"]
    assert first["average"] == second["average"]


def test_a_loader_gives_each_instance_rows_of_its_own():
    first, second = records_of("--num-instances", "2", "partitioned_loading.py")

    for mine, others in zip(first["epochs"], second["epochs"]):
        assert sorted(mine + others) == list(range(16))
        assert len(mine) == len(others) == 8
    assert first["epochs"][0] != first["epochs"][1]


def test_one_instance_may_do_something_of_its_own_between_epochs(tmp_path):
    first, second = records_of("--num-instances", "2", "popdist_validation.py", str(tmp_path))

    assert first["accuracy"] > 0.8
    assert second["accuracy"] is None
    assert (first["weights"], first["loss"]) == (second["weights"], second["loss"])


@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        ("raise", 1, "invalid literal for int()"),
        ("leave", 1, "process 0 of 2 cannot exchange gradients with the others: one of them has ended"),
        ("die", 128 + signal.SIGKILL, "instance 1 (of 0 to 1) ended with signal SIGKILL"),
    ],
)
def test_no_instance_waits_for_one_that_has_ended(failure, status, said):
    result = porting_run("--num-instances", "2", "failing_instance.py", failure, status=status)

    assert said in result.stderr
    assert "trained to the end" not in result.stdout


def test_no_instance_waits_for_ever_for_one_that_hangs():
    result = porting_run("--num-instances", "2", "failing_instance.py", "hang", status=1, PORTING_EXCHANGE_TIMEOUT="8")

    assert "did not answer within 8 seconds" in result.stderr
    assert "instance 0 (of 0 to 1) ended with status 1; stopping instance 1" in result.stderr

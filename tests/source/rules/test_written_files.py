"""Checkpoints and files of several processes."""

from __future__ import annotations

import pytest

HEAD = """
        import logging
        import torch
        import torch.distributed as dist
        model = torch.nn.Linear(4, 3)
        dist.init_process_group("gloo")
        rank = dist.get_rank()
"""


def test_one_process_or_a_name_for_each_is_no_finding(find):
    program = (
        HEAD
        + """
        if rank == 0:
            torch.save(model.state_dict(), "weights.pt")
        torch.save(model.state_dict(), f"weights-{rank}.pt")
        suffix = f"-{rank}"
        torch.save(model.state_dict(), "weights" + suffix)
        torch.save(model.state_dict(), "all.pt")
        logging.FileHandler("train.log")
    """
    )

    assert find(program) == ["D018:5", "K007:13", "K007:14"]


def test_a_program_of_one_process_may_write_what_it_likes(find):
    program = """
        import torch
        model = torch.nn.Linear(4, 3)
        torch.save({"model": model.state_dict(), "epoch": 3}, "checkpoint.pt")
        with open("log.txt", "w") as log:
            log.write("done")
    """

    assert find(program) == []


def test_a_model_within_a_checkpoint_is_pickled_as_well(find):
    program = """
        import torch
        model = torch.nn.Linear(4, 3)
        torch.save({"model": model, "epoch": 3}, "checkpoint.pt")
        torch.save(model.state_dict(), "weights.pt")
    """

    assert find(program) == ["K005:3"]


def test_a_function_that_one_instance_executes_writes_its_own_file(find):
    program = """
        import popdist
        import torch
        from model import model
        popdist.init()
        def save(path):
            torch.save(model.state_dict(), path)
        if popdist.isPopdistEnvSet():
            popdist.execute_on_instances({0}, save, "a.pt")
        if not popdist.isPopdistEnvSet():
            save("b.pt")
    """

    assert find(program) == []


def test_every_way_to_a_file_counts(find):
    program = """
        import popdist
        import torch
        from model import model
        popdist.init()
        def save(path):
            torch.save(model.state_dict(), path)
        if popdist.getInstanceIndex() == 0:
            save("a.pt")
        save("b.pt")
    """

    assert find(program) == ["K007:6"]


@pytest.mark.parametrize(
    "line",
    [
        'logging.FileHandler("process.log")',
        'Path("out/metrics.txt").open("w")',
        'Path("final.json").write_text("{}")',
        'logging.basicConfig(filename="train.log")',
    ],
)
@pytest.mark.parametrize(
    "joined", ["popdist.getNumInstances()", "MPI.COMM_WORLD.Get_size()", 'size = os.environ["WORLD_SIZE"]']
)
def test_every_instance_of_a_port_writes_the_file(find, line, joined):
    program = f"""
        import logging, os
        import popdist
        from mpi4py import MPI
        from pathlib import Path
        {joined}
        {line}
    """

    assert "K007:6" in find(program)


def test_a_port_of_one_instance_has_its_files_for_itself(find):
    program = """
        import logging
        import poptorch
        logging.FileHandler("process.log")
    """

    assert find(program) == []


def test_a_name_that_a_method_makes_of_the_instance_is_one_of_its_own(find):
    program = """
        import popdist
        import torch
        class Trainer:
            def __init__(self, folder):
                self.folder = folder
                self.instance = popdist.getInstanceIndex()
            def make_paths(self):
                name = self.folder + f"/model-{self.instance}.pt"
                latest = self.folder + "/processes.txt"
                return name, latest
            def save(self, state):
                path, latest = self.make_paths()
                torch.save(state, path)
                open(latest, "w")
        Trainer("runs").save({})
    """

    assert find(program) == ["K007:14"]


def test_a_rank_of_mpi_that_a_setting_turns_off_is_the_first_in_each_instance_of_a_port(find):
    program = """
        import logging
        import poptorch
        from model import ModelWithLoss
        class Run:
            def __init__(self, args):
                self.args = args
                rank = self.init_mpi()
                self.configure_logger(rank)
                self.port = poptorch.trainingModel(ModelWithLoss())
            def init_mpi(self):
                if not self.args.distributed:
                    return 0
                from mpi4py import MPI
                return MPI.COMM_WORLD.Get_rank()
            def configure_logger(self, rank):
                if rank == 0:
                    logging.FileHandler("process.log")
        def main(args):
            Run(args)
        if __name__ == "__main__":
            main(object())
    """

    assert find(program) == ["K007:17"]


def test_a_model_whose_calls_alone_go_to_a_device_is_saved_as_it_is(find):
    calls = "from porting.integrations import DeviceCalls\nDeviceCalls(model, device='ipu').install()\n"
    assert find(f"import torch\nmodel = torch.nn.Linear(4, 3)\n{calls}torch.save(model, 'model.pt')\n") == []

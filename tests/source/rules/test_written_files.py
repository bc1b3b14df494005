"""Checkpoints and files of several processes."""

from __future__ import annotations

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

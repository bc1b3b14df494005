import argparse
import logging

from src.config import Config
from src.distributed_trainer import distributed_trainer
from src.trainer import torch_trainer


def init_mpi(args):
    if not args.run.distributed:
        return 0
    from mpi4py import MPI

    return MPI.COMM_WORLD.Get_rank()


def configure_logger(args, rank):
    if rank == 0:
        logging.getLogger().addHandler(logging.FileHandler(args.output_dir + "/process.log"))  # finds: K007


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=100)
    options = parser.parse_args()
    args = Config()
    args.run.iterations = options.iterations
    rank = init_mpi(args)
    configure_logger(args, rank)
    if args.framework == "tensorflow":
        import tensorflow

        raise SystemExit(tensorflow.__version__)
    if args.run.distributed:
        trainer = distributed_trainer(args)
    else:
        trainer = torch_trainer(args)
    trainer.initialize()
    trainer.batch_process()


if __name__ == "__main__":
    main()

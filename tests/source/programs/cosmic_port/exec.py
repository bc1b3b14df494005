import argparse

from src.config import Config
from src.distributed_trainer import distributed_trainer
from src.trainer import torch_trainer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=100)
    options = parser.parse_args()
    args = Config()
    args.run.iterations = options.iterations
    if args.run.distributed:
        trainer = distributed_trainer(args)
    else:
        trainer = torch_trainer(args)
    trainer.initialize()
    trainer.batch_process()


if __name__ == "__main__":
    main()

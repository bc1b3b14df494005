#!/usr/bin/env python
import os
import sys

# Add the project to the import path:
project_dir = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, project_dir)

from src.config.config import read_config
from src.utils.trainer import TorchTrainer


class Exec:

    def __init__(self, config):
        self.args = config
        self.trainer = TorchTrainer(config)
        self.trainer.initialize()
        self.trainer.batch_process()


def main():
    # each word is `group.name=value`
    Exec(read_config(sys.argv[1:]))


if __name__ == "__main__":
    main()

import logging
import os
import time
from collections import defaultdict
from contextlib import contextmanager

import torch

from larcvio.larcv_fetcher import larcv_fetcher

logger = logging.getLogger("cosmictagger")


class trainercore(object):
    def __init__(self, args):
        self.args = args
        self._iteration = 0
        self.iter_profile = defaultdict(float)
        self.larcv_fetcher = larcv_fetcher(mode=args.mode.name, distributed=args.run.distributed)

    @contextmanager
    def timing_context(self, key):
        start = time.time()
        yield
        self.iter_profile[key] += time.time() - start

    def is_training(self):
        return self.args.mode.name == "train"

    def batch_process(self):
        self.configure_logger()
        for self._iteration in range(self.args.run.iterations):
            self.iter_profile = defaultdict(float)
            with self.timing_context("iteration"):
                if self.is_training() and self._iteration % self.args.run.aux_iterations == 0:
                    self.val_step()
                self.train_step()
                if self._iteration % self.args.mode.checkpoint_iteration == 0:
                    self.save_model()
            logger.info("iteration %d took %.3f s", self._iteration, self.iter_profile["iteration"])

    def configure_logger(self):
        os.makedirs(self.args.output_dir, exist_ok=True)
        handler = logging.FileHandler(self.args.output_dir + "/process.log")
        logger.addHandler(handler)


def to_torch(minibatch_data, device):
    for key in ("image", "label"):
        minibatch_data[key] = torch.tensor(minibatch_data[key], device=device)
    return minibatch_data

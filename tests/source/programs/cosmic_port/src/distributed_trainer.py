import os

import poptorch  # finds: D010
import torch
import torch.distributed as dist

from .config import ComputeMode
from .trainer import torch_trainer

try:
    import popdist
    import popdist.poptorch
except ImportError:  # finds: D011
    pass


class distributed_trainer(torch_trainer):
    def __init__(self, args):
        torch_trainer.__init__(self, args)
        if args.run.compute_mode == ComputeMode.IPU:
            self._rank = popdist.getInstanceIndex()
            self._size = popdist.getNumInstances()
        else:
            self._rank = int(os.environ["RANK"])
            self._size = int(os.environ["WORLD_SIZE"])
            dist.init_process_group(backend="gloo", rank=self._rank, world_size=self._size)

    def make_options(self):
        opts = poptorch.Options()  # finds: D017
        opts.replicationFactor(self.args.run.num_replicas)  # finds: P014
        return opts

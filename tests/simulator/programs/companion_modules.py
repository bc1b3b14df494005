"""Use what programs use of the modules that come with the vendor's SDK."""

import examples_utils
import horovod.torch as hvd
import libpvti as pvti
import popart
import poptorch
import torch

hvd.init()
examples_utils.init()
opts = poptorch.Options()
opts._Popart.set("autoRecomputation", int(popart.RecomputationType.RecomputeAll))
opts._Popart.set(
    "accumulateOuterFragmentSettings.schedule", popart.AccumulateOuterFragmentSchedule.OverlapMemoryOptimized
)
opts._Popart.set("virtualGraphMode", popart.VirtualGraphMode.Manual)
with pvti.Tracepoint(pvti.createTraceChannel("program"), "inference"):
    output = poptorch.inferenceModel(torch.nn.Linear(2, 2), opts)(torch.ones(1, 2))
print(hvd.rank(), hvd.size(), tuple(hvd.allreduce(output.detach()).shape))

"""Pass a structure of one's own to a model, with a parser that takes it apart and puts it together."""

import poptorch
import torch


class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right


class PairParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.left
        yield struct.right

    def reconstruct(self, original_structure, tensor_iterator):
        return Pair(next(tensor_iterator), next(tensor_iterator))


poptorch.registerCustomArgParser(Pair, PairParser())


class Swap(torch.nn.Module):
    def forward(self, pair):
        return Pair(pair.right * 2, pair.left)


result = poptorch.inferenceModel(Swap())(Pair(torch.ones(2), torch.zeros(2)))
print(type(result).__name__, result.left.tolist(), result.right.tolist())

from __future__ import print_function

from itertools import count

import torch
import torch.nn.functional as F

POLY_DEGREE = 4
W_target = torch.randn(POLY_DEGREE, 1) * 5
b_target = torch.randn(1) * 5


def make_features(x):
    """Builds features i.e. a matrix with columns [x, x^2, x^3, x^4]."""
    x = x.unsqueeze(1)
    return torch.cat([x**i for i in range(1, POLY_DEGREE + 1)], 1)


def f(x):
    return x.mm(W_target) + b_target.item()


def get_batch(batch_size=32):
    random = torch.randn(batch_size)
    x = make_features(random)
    y = f(x)
    return x, y


fc = torch.nn.Linear(W_target.size(0), 1)

for batch_idx in count(1):
    batch_x, batch_y = get_batch()
    fc.zero_grad()  # finds: O008
    output = F.smooth_l1_loss(fc(batch_x), batch_y)  # finds: L001
    loss = output.item()  # finds: D020
    output.backward()  # finds: L010

    for param in fc.parameters():
        param.data.add_(-0.1 * param.grad)  # finds: O015

    if loss < 1e-3:
        break  # finds: B021

print("Loss: {:.6f} after {} batches".format(loss, batch_idx))

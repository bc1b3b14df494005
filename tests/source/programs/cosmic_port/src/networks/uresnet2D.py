import poptorch  # finds: D010
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, inplanes, outplanes, kernel=3):
        nn.Module.__init__(self)
        self.conv = nn.Conv2d(inplanes, outplanes, kernel_size=kernel, padding=kernel // 2)
        self.bn = nn.BatchNorm2d(outplanes)

    def forward(self, x):
        return F.leaky_relu(self.bn(self.conv(x)))


class UResNet(nn.Module):
    def __init__(self, params):
        nn.Module.__init__(self)
        self.initial_convolution = Block(1, params.n_initial_filters, 5)
        self.bottleneck = nn.Conv2d(params.n_initial_filters, 3, kernel_size=1)

    def forward(self, input_tensor, loss_calculator=None, labels_image=None):
        x = torch.chunk(input_tensor, chunks=3, dim=1)
        x = tuple(self.initial_convolution(_x) for _x in x)
        x = tuple(self.bottleneck(_x) for _x in x)
        if loss_calculator is not None:
            labels_image = labels_image.long()
            labels_image = torch.chunk(labels_image, chunks=3, dim=1)
            shape = labels_image[0].shape
            labels_image = [label.view([shape[0], shape[-2], shape[-1]]) for label in labels_image]
            loss = loss_calculator(labels_image, x)
            return x, labels_image, poptorch.identity_loss(loss, reduction="mean")  # finds: L013
        return x

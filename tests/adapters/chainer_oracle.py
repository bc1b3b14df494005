"""Chainer's definitions in NumPy, written from its documentation: the forward pass that loaded weights must reproduce.

B = samples, C = channels, H and W = height and width, T = time steps, U = units, I = inputs.
"""

from __future__ import annotations

import io
import zipfile

import numpy as np


def save_npz(path, arrays):
    """Write what `chainer.serializers.save_npz` writes: one entry an array, Python's None where there is none."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in arrays.items():
            stream = io.BytesIO()
            np.lib.format.write_array(stream, np.asanyarray(value), allow_pickle=True)
            archive.writestr(f"{name}.npy", stream.getvalue())


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def linear(x_bi, weight, bias):
    """F.linear: y = x W^T + b."""
    return np.einsum("bi,oi->bo", x_bi, weight) + bias


def convolution_2d(x, weight, bias, *, pad=0):
    """F.convolution_2d, one output pixel at a time: a correlation, not a convolution."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    (num, _, height, width), (channels, _, kernel_h, kernel_w) = x.shape, weight.shape
    out = np.empty((num, channels, height - kernel_h + 1, width - kernel_w + 1))
    for row in range(out.shape[2]):
        for column in range(out.shape[3]):
            window = x[:, :, row : row + kernel_h, column : column + kernel_w]
            out[:, :, row, column] = np.einsum("bchw,ochw->bo", window, weight) + bias
    return out


def max_pooling_2d(x, size, stride, *, cover_all=True):
    """F.max_pooling_2d: with `cover_all`, its default, the last window may reach beyond the edge."""
    extra = stride - 1 if cover_all else 0
    rows = (x.shape[2] - size + extra) // stride + 1
    columns = (x.shape[3] - size + extra) // stride + 1
    out = np.empty((*x.shape[:2], rows, columns))
    for row in range(rows):
        for column in range(columns):
            window = x[:, :, row * stride : row * stride + size, column * stride : column * stride + size]
            out[:, :, row, column] = window.max(axis=(2, 3))
    return out


def batch_normalization(x, gamma, beta, mean, variance, *, eps=2e-5):
    """F.fixed_batch_normalization over the channels."""
    shape = (1, -1) + (1,) * (x.ndim - 2)
    x = (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + eps)
    return gamma.reshape(shape) * x + beta.reshape(shape)


def lstm(x_tbi, upward_w, upward_b, lateral_w):
    """L.LSTM over T steps: every four rows in turn are a, i, f, o of one unit."""
    num_units = lateral_w.shape[1]
    cell = state = np.zeros((x_tbi.shape[1], num_units))
    states = []
    for x in x_tbi:
        rows = linear(x, upward_w, upward_b) + state @ lateral_w.T
        gates = rows.reshape(len(x), num_units, 4)
        a, i, f, o = np.tanh(gates[..., 0]), sigmoid(gates[..., 1]), sigmoid(gates[..., 2]), sigmoid(gates[..., 3])
        cell = a * i + f * cell
        state = o * np.tanh(cell)
        states.append(state)
    return np.stack(states)


def n_step_lstm(x_tbi, layers):
    """L.NStepLSTM: for each layer W0 to W3 of the input and W4 to W7 of the state, in the order i, f, o, a."""
    for weights, biases in layers:
        num_units = weights[4].shape[1]
        cell = state = np.zeros((x_tbi.shape[1], num_units))
        states = []
        for x in x_tbi:
            rows = [
                x @ weights[gate].T + biases[gate] + state @ weights[gate + 4].T + biases[gate + 4] for gate in range(4)
            ]
            i, f, o, a = sigmoid(rows[0]), sigmoid(rows[1]), sigmoid(rows[2]), np.tanh(rows[3])
            cell = f * cell + i * a
            state = o * np.tanh(cell)
            states.append(state)
        x_tbi = np.stack(states)
    return x_tbi

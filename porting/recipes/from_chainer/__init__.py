"""Weights that Chainer has trained go on training in torch: npz snapshots, layer by layer, then on the device."""

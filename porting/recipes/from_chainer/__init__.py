"""Load weights that Chainer has trained into torch, npz snapshot by layer, and train them further on the device."""

"""Handwritten digits: a plain PyTorch training loop becomes one that runs on an IPU."""

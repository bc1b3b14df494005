"""Port a plain PyTorch training loop for handwritten digits to an IPU."""

"""The arithmetic of optimizers: plain, by torch's fused kernels, and as operators for a compiler."""

"""This package is the arithmetic of optimizers, which engines share.

It is plain, by torch's fused kernels, or as operators for a compiler.
"""

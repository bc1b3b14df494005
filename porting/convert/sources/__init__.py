"""Convert programs that are no plain loop of PyTorch: those of trainer libraries, of PopTorch, and of Chainer.

Each kind of program has a module here, which the plan of a conversion asks before it looks for a loop.
"""

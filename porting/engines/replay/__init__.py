"""This package is the engine `replay`, which runs the captured graph literally, operator by operator.

All other engines are compared with it.
"""

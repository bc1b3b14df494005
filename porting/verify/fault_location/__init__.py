"""The place of a fault: both sides' values, gradients, updates and settings, compared where they first part.

Steps are captured and replayed operator by operator, which needs a torch that can capture.
"""

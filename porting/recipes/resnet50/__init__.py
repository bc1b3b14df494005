"""Port ResNet-50 with the training of large batches: scaled rate, warm-up, groups, smoothing, accumulation."""

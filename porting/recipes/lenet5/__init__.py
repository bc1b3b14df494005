"""Port LeNet-5 for handwritten digits, a model that returns logits in training and probabilities in use."""

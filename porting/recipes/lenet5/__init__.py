"""LeNet-5 and handwritten digits: a model that returns logits in training and probabilities in use."""

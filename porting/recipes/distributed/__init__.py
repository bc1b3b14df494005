"""Training in several processes: replicas, instances of torchrun and poprun, shares of the data, the learning rate."""

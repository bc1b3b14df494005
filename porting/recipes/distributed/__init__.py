"""Train in several processes: replicas, instances, shares of the data, the learning rate."""

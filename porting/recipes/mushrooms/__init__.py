"""Port a perceptron that tells poisonous mushrooms from edible ones, from a plain loop to a hundred steps a call."""

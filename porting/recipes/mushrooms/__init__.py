"""Poisonous or edible? A perceptron on the UCI mushrooms, from a plain loop to a hundred steps a call."""

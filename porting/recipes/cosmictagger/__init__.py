"""Port CosmicTagger, a network that segments neutrino events, from one CPU to several instances on IPUs."""

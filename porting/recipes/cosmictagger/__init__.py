"""CosmicTagger: a network that segments neutrino events moves to IPUs, from one CPU to several instances."""

"""Four trainer libraries: digits with accelerate, Ignite, Lightning and transformers, and equal losses with each."""

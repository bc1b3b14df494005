"""Steps as programs for a compiler, and the executable that runs what the compiler made of them."""

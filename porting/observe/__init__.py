"""This package tells one watcher of each operator of a step, of the gradients and of the update.

The search for NaN, the timelines and the traces of a proof are such watchers. Plain PyTorch tells them through this
package, which knows no port and no engine, and the replay of a captured step through `engines.replay.watched_replay`.
"""

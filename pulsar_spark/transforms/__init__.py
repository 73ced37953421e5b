"""Frames in, frames out, no reads, writes, actions, clock or randomness: the interval algebra and the steps of a
round's plan."""

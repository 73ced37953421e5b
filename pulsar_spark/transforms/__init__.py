"""Functions from DataFrames to DataFrames, without reads, writes, actions, clock or randomness: the steps of a round's
plan, and operations on messages."""

"""Tables derived from rounds and written after them; letters are the first.

Each projection is a row of ``behind_rounds.PROJECTIONS``; its own module writes it.
"""

"""Tables derived from rounds and written after them: letters are the first.

Every projection is a row of ``behind_rounds.PROJECTIONS`` with its rules; its own module writes it.
"""

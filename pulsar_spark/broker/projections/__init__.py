"""What is derived from rounds and written behind them, a projection each: letters are the first. Every projection is a
row of ``behind_rounds.PROJECTIONS``, which says what it keeps to; a module of its own says how it writes."""

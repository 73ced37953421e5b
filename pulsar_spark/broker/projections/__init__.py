"""What is derived from rounds and written behind them: letters."""

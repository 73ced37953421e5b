"""Write through the data source: tasks write files of rows, the driver commits them once."""

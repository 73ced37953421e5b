"""On a cluster whose executors are processes of their own, and are killed."""

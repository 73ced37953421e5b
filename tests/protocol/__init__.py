"""The pure rules, against golden vectors and by hand. Nothing here imports Spark."""

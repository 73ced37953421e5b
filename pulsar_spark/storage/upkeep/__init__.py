"""Keeping tables small and quick: joining files, shortening logs, trimming, and deleting what nobody can see."""

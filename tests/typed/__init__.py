"""Programs as users write them, which ``mypy --strict`` passes; nothing of them is run."""

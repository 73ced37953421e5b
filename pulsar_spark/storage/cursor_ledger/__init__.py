"""The broker's tables of requests and rounds: reading their rows, and appending rounds."""

"""Read topics as frames: messages with their chunks put together, and payloads decoded."""

"""A round: requests taken in, work gathered, planned, absorbed and committed; and the stream that runs rounds until the
broker stops."""

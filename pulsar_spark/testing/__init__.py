"""For tests of applications: a broker in their process without Java, a clock that they move, fixtures of pytest."""

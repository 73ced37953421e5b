"""What tests of applications need: a broker in their own process, without Java, whose rounds and time they control."""

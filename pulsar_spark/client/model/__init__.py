"""What applications handle as values: messages, enumerations, policies, connections and loggers."""

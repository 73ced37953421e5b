"""What a subscription knows of each entry: a map from positions to state codes, as codes and as ranges."""

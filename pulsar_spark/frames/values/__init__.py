"""Values of a schema as typed columns: decoded for readers, encoded for publishers."""

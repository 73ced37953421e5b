"""What people look at: views for SQL, statistics, history, the catalog of what exists. Nothing here decides anything."""

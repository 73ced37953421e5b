"""Reading entries by position: which files hold them, their rows, and those that are gone."""

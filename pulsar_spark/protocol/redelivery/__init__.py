"""When entries come again, and the letters they become when they come no more."""

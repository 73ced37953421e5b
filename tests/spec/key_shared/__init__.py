"""Key_Shared: which keys are whose, and the order of each."""

"""Key_Shared cursors: who owns which hashes, and whose each entry is."""

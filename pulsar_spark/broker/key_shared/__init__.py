"""Key_Shared cursors: who owns which hashes, whose each entry is, and the compact form by lane."""

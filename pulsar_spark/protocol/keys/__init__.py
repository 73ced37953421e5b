"""Keys and their hashes, and who owns which hashes on Key_Shared."""

"""Entries that wait for their deliver time: the table ``delay_index``, its files, and finding what is due."""

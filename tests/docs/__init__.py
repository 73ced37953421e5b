"""The README and the pages of ``docs/``: their code runs as it stands, their links lead somewhere, the site is built."""

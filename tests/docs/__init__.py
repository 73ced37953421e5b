"""The README and the pages of ``docs/``: their code runs, their links lead somewhere, the site is built."""

"""How public objects show themselves: a line in a console or a table in a notebook, without payloads and secrets."""

from html import escape


class Described:
    """Shown by class and by :meth:`_facts`, which read only memory and never wait."""

    __slots__ = ()

    def _facts(self) -> dict[str, object]:
        """The facts to show, by name."""
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in self._facts().items())
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
            for name, value in self._facts().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"

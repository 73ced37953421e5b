"""A terminal that shows frames and gives keys: plain escapes of ANSI, nothing but the standard library."""

import contextlib
import os
import select
import termios
import tty
from collections.abc import Sequence
from types import TracebackType
from typing import Self

_KEYS = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[D": "escape",
    "\x1b": "escape",
    "\x7f": "escape",
    "\r": "enter",
    "\n": "enter",
    "k": "up",
    "j": "down",
    "G": "end",
}
_ESCAPE_SECONDS = 0.05
"""How soon the rest of a key's escape must follow."""
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
"""Another screen, without cursor and wrapping; and back."""
REVERSE, BOLD, PLAIN = "\x1b[7m", "\x1b[1m", "\x1b[0m"


class Terminal:
    """Takes the terminal over in its ``with`` block, and gives it back as it was. Ctrl-C stays a signal."""

    def __init__(self, source: int, sink: int):
        self._source, self._sink = source, sink
        self._before: list | None = None
        self._shown: list[str] | None = None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._source)
        tty.setcbreak(self._source)
        self._write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError, termios.error):  # the terminal may be gone
            self._write(_LEAVE + PLAIN)
            if self._before is not None:
                termios.tcsetattr(self._source, termios.TCSADRAIN, self._before)

    def size(self) -> tuple[int, int]:
        """Columns and lines; 80 and 24 if the terminal does not say."""
        found = os.get_terminal_size(self._sink)
        return found.columns or 80, found.lines or 24

    def show(self, lines: Sequence[str], *, anew: bool = False) -> None:
        """Write the lines that differ from those shown, in one write; all of them if *anew*, as after a resize."""
        before = [] if anew or self._shown is None else self._shown
        text = "\x1b[2J" if not before else ""
        for number, line in enumerate(lines):
            if number >= len(before) or before[number] != line:
                text += f"\x1b[{number + 1};1H{line}{PLAIN}\x1b[K"
        if len(lines) < len(before):
            text += f"\x1b[{len(lines) + 1};1H\x1b[J"
        if text:
            self._write(text)
        self._shown = [*lines]

    def key(self, seconds: float) -> str | None:
        """The next key within *seconds*: a character, or a name such as ``up``. None for none. EOFError if the terminal
        is gone."""
        if not self._is_ready(seconds):
            return None
        text = self._read()
        while text.startswith("\x1b") and text not in _KEYS.keys() - {"\x1b"} and self._is_ready(_ESCAPE_SECONDS):
            text += self._read()
            if len(text) > 8:
                break
        return _KEYS.get(text, text if len(text) == 1 else None)

    def _is_ready(self, seconds: float) -> bool:
        return bool(select.select([self._source], [], [], seconds)[0])

    def _read(self) -> str:
        try:
            found = os.read(self._source, 1)
        except OSError:
            found = b""
        if not found:
            raise EOFError("the terminal is gone")
        return found.decode("latin-1")

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._sink, data) :]

"""A pseudo-terminal, and the screen that a program draws on it."""

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import termios
import threading
from typing import Self

from tests.support.waiting import eventually

_PART = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|(\x1b[^\[]?|\x1b\[\??[\d;]*)\Z|([^\x1b]+)")


class Screen:
    """What stands on a terminal of so many columns and lines; ``descriptor`` is the program's end."""

    def __init__(self, columns: int = 80, lines: int = 24):
        self._master, self.descriptor = pty.openpty()
        self.resize(columns, lines)
        self._rows, self._at, self._rest = dict[int, str](), (0, 0), ""
        self.modes: set[str] = set()
        self.clears = self.bytes = 0
        self.defects: list[AssertionError] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._is_open = True
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self._thread.join()
        for descriptor in (self._master, self.descriptor):
            os.close(descriptor)
        assert not self.defects, self.defects[0]

    def resize(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def attributes(self) -> list:
        return termios.tcgetattr(self.descriptor)

    def rows(self) -> list[str]:
        """The lines, without trailing blanks."""
        return [self._rows.get(number, "").rstrip() for number in range(self.lines)]

    def has(self, text: str) -> bool:
        return any(text in row for row in self.rows())

    def wait(self, text: str) -> None:
        """Until *text* stands on the screen."""
        try:
            eventually(lambda: self.has(text), 60)
        except AssertionError:
            raise AssertionError("\n".join([f"{text!r} does not come:", *self.rows()])) from None

    def _read(self) -> None:
        while self._is_open:
            if not select.select([self._master], [], [], 0.01)[0]:
                continue
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            self.bytes += len(data)
            try:
                self._take(self._rest + self._decoder.decode(data))
            except AssertionError as defect:
                self.defects.append(defect)

    def _take(self, text: str) -> None:
        self._rest = ""
        for numbers, command, begun, plain in _PART.findall(text):
            row, column = self._at
            if begun:
                self._rest = begun
            elif plain:
                before = self._rows.get(row, "").ljust(column)
                self._rows[row] = before[:column] + plain + before[column + len(plain) :]
                self._at = row, column + len(plain)
                assert self._at[1] <= self.columns, f"a line is too long: {self._rows[row]!r}"
            elif command == "H":
                row, column = (int(each) - 1 for each in (numbers or "1;1").split(";"))
                assert row < self.lines, "a line below the screen"
                self._at = row, column
            elif command == "K":
                self._rows[row] = self._rows.get(row, "")[:column]
            elif command == "J":
                self.clears += numbers == "2"
                self._rows = {} if numbers == "2" else {each: kept for each, kept in self._rows.items() if each < row}
            elif command in "hl":
                (self.modes.add if command == "h" else self.modes.discard)(numbers)
            else:
                assert command == "m", f"an unknown escape: {numbers}{command}"

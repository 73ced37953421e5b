"""Pages of state codes, packed: a page that no round touches takes as many bits an entry as tell its codes apart."""

import numpy as np

PAGE_BITS = 12
PAGE = 1 << PAGE_BITS
"""Entries a page."""

_WIDTHS = (1, 2, 4, 8)
_SIZE = np.dtype(np.uint16)


def pack(codes: np.ndarray) -> bytes:
    """The codes of a page in bytes: how many different ones there are, these, and which of them each entry has.

    >>> page = np.zeros(PAGE, np.uint16)
    >>> page[7] = 300
    >>> len(pack(page)), (unpack(pack(page)) == page).all()
    (518, np.True_)
    """
    used = np.flatnonzero(np.bincount(codes))
    width = _width(len(used))
    if not width or used[-1] > np.iinfo(_SIZE).max:
        return _SIZE.type(0).tobytes() + codes.astype(np.uint32).tobytes()
    number_of = np.zeros(int(used[-1]) + 1, np.uint8)
    number_of[used] = np.arange(len(used))
    numbers = number_of[codes].reshape(-1, 8 // width)
    octets = np.zeros(len(numbers), np.uint8)
    for place in range(numbers.shape[1]):
        octets |= numbers[:, place] << (place * width)
    return _SIZE.type(len(used)).tobytes() + used.astype(_SIZE).tobytes() + octets.tobytes()


def unpack(packed: bytes) -> np.ndarray:
    """The codes of a page that was packed."""
    size = int(np.frombuffer(packed, _SIZE, 1)[0])
    if not size:
        return np.frombuffer(packed, np.uint32, offset=_SIZE.itemsize).copy()
    used = np.frombuffer(packed, _SIZE, size, _SIZE.itemsize)
    octets = np.frombuffer(packed, np.uint8, offset=(size + 1) * _SIZE.itemsize)
    width = _width(size)
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    return used[(octets[:, None] >> shifts & ((1 << width) - 1)).ravel()]


def _width(size: int) -> int:
    """Bits that tell so many codes apart; 0 for more than fit into an octet."""
    return next((width for width in _WIDTHS if size <= 1 << width), 0)

"""How many entries each consumer may take in a round of the reference broker: 2.16, 2.17, 2.38, 4.6, 0.28."""

SMALLEST_SHARE = 20
READ_BATCH = 100


class Widths:
    """Of one line, asked in the order of its turns. *again* and *new* are the weights of what comes again and of what
    is new, in order; of both so many are *offered* as there are *permits*."""

    def __init__(self, again: list[int], new: list[int], permits: int, *, is_single_active: bool, is_by_key: bool):
        self.offered = min(len(again) + len(new), permits)
        self.heaviest_again = max(again[:permits], default=1)
        self.heaviest_new = max(new[: max(0, permits - len(again))], default=1)
        self.again = again
        self.is_single_active, self.is_by_key = is_single_active, is_by_key
        self.is_all_taken: bool | None = None

    def share(self, peers: int) -> int:
        """A fair share, of so many of a level."""
        return max(SMALLEST_SHARE, -(-self.offered // peers))

    def of(self, room: int, peers: int) -> int:
        """Entries for who has room for so many messages."""
        if room <= 0 or self.is_by_key:
            return max(0, room)
        by_heaviest = -(-room // max(self.heaviest_again, self.heaviest_new))
        if self.is_single_active:
            return max(min(room, READ_BATCH), by_heaviest)
        if self.is_all_taken is None:
            self.is_all_taken = sum(self.again) < room and len(self.again) <= self.share(peers)
            if self.is_all_taken:
                return len(self.again) + -(-(room - sum(self.again)) // self.heaviest_new)
            return max(by_heaviest, min(self.share(peers), -(-room // self.heaviest_again)))
        return -(-room // self.heaviest_new) if self.is_all_taken else by_heaviest

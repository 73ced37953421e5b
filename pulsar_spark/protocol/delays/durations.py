"""Durations as people write them."""


def shown_seconds(seconds: float) -> str:
    """A number of seconds as text, with a suitable unit and precision.

    >>> [shown_seconds(each) for each in (4.99987, 1.5, 0.0123, 12.4, 119.6, 150, 7_200, 86_400 * 10)]
    ['5 s', '1.5 s', '12 ms', '12 s', '2 min', '2.5 min', '2 h', '10 d']
    """
    if 0 < seconds < 0.0995:
        return f"{float(f'{seconds * 1000:.2g}'):g} ms"
    for size, least, unit in ((86_400, 2 * 86_400, "d"), (3_600, 2 * 3_600, "h"), (60, 119.5, "min")):
        if seconds >= least:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{float(f'{seconds:.2g}') if seconds < 10 else round(seconds):g} s"

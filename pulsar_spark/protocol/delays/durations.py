"""Durations as people write them, for messages and logs."""


def shown_seconds(seconds: float) -> str:
    """A number of seconds as text, with a suitable unit and precision.

    >>> [shown_seconds(each) for each in (4.99987, 30, 1.5, 0.2, 0.0123, 0, 12.4, 119.6)]
    ['5 s', '30 s', '1.5 s', '0.2 s', '12 ms', '0 s', '12 s', '2 min']
    >>> [shown_seconds(each) for each in (60, 90, 150, 600, 7_200, 86_400 * 10, 0.0001)]
    ['60 s', '90 s', '2.5 min', '10 min', '2 h', '10 d', '0.1 ms']
    """
    if 0 < seconds < 0.0995:
        return f"{float(f'{seconds * 1000:.2g}'):g} ms"
    for size, least, unit in ((86_400, 2 * 86_400, "d"), (3_600, 2 * 3_600, "h"), (60, 119.5, "min")):
        if seconds >= least:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{float(f'{seconds:.2g}') if seconds < 10 else round(seconds):g} s"

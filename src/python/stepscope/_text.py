"""How figures are written for people, as the command writes them."""

from typing import Optional, Sequence, Tuple

UNKNOWN = "unknown"


def duration(nanoseconds: Optional[float]) -> str:
    """A time, such as 132.6 ms."""
    if nanoseconds is None:
        return UNKNOWN
    return _scaled(nanoseconds, 1000, ("ns", "µs", "ms"), then=(1e9, "s"))


def size(count: Optional[float]) -> str:
    """An amount of memory, such as 23.4 GB."""
    return UNKNOWN if count is None else _scaled(count, 1000, ("B", "kB", "MB", "GB", "TB"))


def percent(share: Optional[float]) -> str:
    """A share, such as 48.7%."""
    return UNKNOWN if share is None else "%.1f%%" % (100 * share)


def count(number: Optional[float]) -> str:
    """A large number, such as 61,663."""
    return UNKNOWN if number is None else "{:,}".format(round(number))


def spelled(word: str) -> str:
    """A word of the JSON, such as optimizer_state, for people."""
    return word.replace("_", " ")


def signed(text: str, number: float) -> str:
    """A change, with its sign."""
    return "+" + text if number > 0 else text


def _scaled(number: float, step: float, units: Sequence[str], then: Optional[Tuple[float, str]] = None) -> str:
    if then is not None and abs(number) >= then[0]:
        return "%.2f %s" % (number / then[0], then[1])
    unit = 0
    while abs(number) >= step - 0.05 and unit + 1 < len(units):
        number /= step
        unit += 1
    return ("%.0f %s" if unit == 0 else "%.1f %s") % (number, units[unit])

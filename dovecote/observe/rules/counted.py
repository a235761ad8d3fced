"""Say how many there are of a thing."""


def counted(number: int, thing: str) -> str:
    """Return a number and the word for so many, such as `1 letter` and `1,000 letters`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"

import io

from dovecote.devstack.progress import Fetched, shown


def test_plain_lines_begin_each_download_and_do_not_flood() -> None:
    out = io.StringIO()

    with shown(out) as progress:
        for jars in range(100):
            progress(Fetched("kafka", 100, jars, jars / 2))
        progress(Fetched("spark", 1, 0, 0.0))

    assert out.getvalue().splitlines() == [
        "kafka: 100 modules found",
        "spark: 1 modules found",
    ]


def test_a_terminal_is_shown_a_live_line() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()

    with shown(out) as progress:
        progress(Fetched("kafka", 46, 45, 42.2))

    assert "kafka: 45 of 46 jars, 42.2 MB" in out.getvalue()


def test_a_download_reads_as_a_sentence() -> None:
    assert str(Fetched("kafka", 46, 3, 12.34)) == "kafka: 3 of 46 jars, 12.3 MB"

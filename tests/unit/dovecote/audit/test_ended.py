"""An auditor that ends at any moment leaves no finding behind."""

from pathlib import Path
from threading import Event

from tests.support.audited_apart import Apart, record, row


def test_odd_records_that_come_as_it_ends_are_found(tmp_path: Path) -> None:
    state = tmp_path / "audit.sqlite3"
    apart = Apart(rows=[row(n) for n in range(1_200)], state=state)
    apart.read()
    apart.judge(1)
    apart.records = [record(n, value=b"another") for n in range(1_200)]
    ended = Event()
    take = apart.comparison.topics.read

    def read(most: int, seconds: float) -> object:
        ended.set()
        return take(most, seconds)

    apart.comparison.topics.read = read
    apart.auditor.run(ended, lambda _: None)
    apart.store.close()
    again = Apart(state=state)
    assert again.comparison.matcher.topics[0].counts.matched == 1_200
    assert again.judge() == ["altered"] * 1_200

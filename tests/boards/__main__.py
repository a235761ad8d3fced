"""Write the dashboards, the chart's copies and the tables: `python -m tests.boards`."""

from tests.boards.made import made


def main() -> None:
    """Write each file whose text has changed, and remove dashboards without a board."""
    wanted = made()
    for folder in {path.parent for path in wanted if path.suffix == ".json"}:
        for path in folder.glob("*.json"):
            if path not in wanted:
                path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path)  # noqa: T201  # a command's output


if __name__ == "__main__":
    main()

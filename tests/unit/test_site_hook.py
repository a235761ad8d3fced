"""Documents become pages of the site without a link that leads nowhere."""

import pytest

from tests.site_hook import for_site


@pytest.mark.parametrize(
    ("link", "uri", "made"),
    [
        ("[a](relay.md#the-slot)", "events.md", "[a](relay.md#the-slot)"),
        ("[a](docs/relay.md)", "overview.md", "[a](relay.md)"),
        ("[a](../DESIGN.md#read-on)", "index.md", "[a](design.md#read-on)"),
        ("[a](../relay.md)", "design/relay.md", "[a](../relay.md)"),
        ("[a](docs/design/relay.md)", "design.md", "[a](design/relay.md)"),
        ("[a](https://kafka.apache.org)", "events.md", "[a](https://kafka.apache.org)"),
        ("[a](#here)", "events.md", "[a](#here)"),
    ],
)
def test_a_link_to_a_page_leads_to_it(link: str, uri: str, made: str) -> None:
    assert for_site(link, uri, "") == made


def test_a_link_to_a_file_leads_to_the_repository_or_nowhere() -> None:
    link = '[seen](../tests/unit/test_docs.py "it is\nseen")'

    assert for_site(link, "guarantees.md", "https://forge.example/dovecote") == (
        "[seen](https://forge.example/dovecote/blob/HEAD/tests/unit/test_docs.py "
        '"tests/unit/test_docs.py: it is\nseen")'
    )
    assert for_site(link, "guarantees.md", "") == (
        '<span title="tests/unit/test_docs.py: it is\nseen">seen</span>'
    )


def test_a_fence_keeps_its_text_and_has_the_name_of_its_file_as_title() -> None:
    assert for_site("```toml relay.toml\n[a](b.md)\n```\n", "relay.md", "") == (
        '```toml title="relay.toml"\n[a](b.md)\n```\n'
    )
    assert for_site("```python in-a-service\n```\n", "consume.md", "") == "```python\n```\n"

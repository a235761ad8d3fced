"""
Make a site of the documents: MkDocs calls these functions while it builds (see mkdocs.yml).

The documents are written for a reader of the repository. On the site, the root's documents are
pages too, links to other files lead to `extra.repository` or are plain text, and `llms.txt` lists
the Markdown of all pages.
"""

import posixpath
import re
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

PAGES = {
    "README.md": "overview.md",
    "DESIGN.md": "design.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""The documents of the root, and the pages that they become."""

_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_NAMED_FENCE = re.compile(r"^```(\w+) (\S+\.\w+)$", re.MULTILINE)
_OTHER_FENCE = re.compile(r"^```(\w+) [^\s=]+$", re.MULTILINE)
_LINK = re.compile(
    r"""\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<to>[^)\s]+)(?:\s+"(?P<title>[^"]*)")?\)"""
)
_LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\ssrc=[\"']?(?:https?:)?//[^>]*>")
_STYLED = re.compile(r"<link\b[^>]*\shref=[\"']?(?:https?:)?//[^>]*>")

_markdown: dict[str, str] = {}
_nav: list[Any] = []


def on_files(files: Any, config: Any) -> Any:
    """Add the documents of the root."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:  # noqa: ARG001  # MkDocs passes them all
    """Keep the order of the pages for `llms.txt`."""
    _nav[:] = nav.items
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001  # likewise
    """Return the page with links and fences as MkDocs reads them."""
    uri = page.file.src_uri
    _markdown[uri] = for_site(markdown, uri, (config.extra.get("repository") or "").rstrip("/"))
    return _markdown[uri]


def on_post_build(config: Any) -> None:
    """Write `llms.txt` and the Markdown of the pages, and refuse foreign addresses and paths."""
    site = Path(config.site_dir)
    for uri, text in _markdown.items():
        (site / uri).parent.mkdir(parents=True, exist_ok=True)
        (site / uri).write_text(text, encoding="utf-8")
    head = f"# {config.site_name}\n\n> {config.site_description}\n"
    listed = "\n".join(_listed(_nav, (config.site_url or "").rstrip("/")))
    (site / "llms.txt").write_text(f"{head}{listed}\n", encoding="utf-8")
    faults = [fault for path in sorted(site.rglob("*")) for fault in _faults(path)]
    if faults:
        from mkdocs.exceptions import PluginError

        raise PluginError("\n".join(faults))


def for_site(markdown: str, uri: str, repository: str) -> str:
    """Return a document's text as that of the page `uri`."""
    source = {page: name for name, page in PAGES.items()}.get(uri, f"docs/{uri}")
    parts = _FENCED.split(markdown)
    return "".join(
        _OTHER_FENCE.sub(r"```\1", _NAMED_FENCE.sub(r'```\1 title="\2"', part))
        if part.startswith("```")
        else _LINK.sub(lambda link: _link(link, source, uri, repository), part)
        for part in parts
    )


def _link(link: re.Match[str], source: str, uri: str, repository: str) -> str:
    to, _, anchor = link["to"].partition("#")
    if not to or "://" in to or to.startswith("mailto:"):
        return link[0]
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), to))
    page = PAGES.get(target, target.removeprefix("docs/") if target.startswith("docs/") else "")
    if page.endswith(".md"):
        place = posixpath.relpath(page, posixpath.dirname(uri) or ".")
        return f"[{link['text']}]({place}{'#' + anchor if anchor else ''})"
    title = ": ".join(part for part in (target, link["title"]) if part)
    if repository:
        return f'[{link["text"]}]({repository}/blob/HEAD/{target} "{title}")'
    return f'<span title="{escape(title)}">{link["text"]}</span>'


def _listed(items: list[Any], site: str) -> list[str]:
    """Return the lines of `llms.txt`: a heading for each group, a link for each page."""
    lines: list[str] = []
    for item in items:
        if item.children:
            heading = [] if item.parent else ["", f"## {item.title}", ""]
            lines += heading + _listed(item.children, site)
        else:
            uri = item.file.src_uri
            address = f"{site}/{uri}" if site else uri
            lines.append(f"- [{item.title}]({address}): {_summary(_markdown[uri])}")
    return lines


def _summary(markdown: str) -> str:
    """Return the first sentence below the title, without markup."""
    for part in _FENCED.sub("", markdown).split("\n\n"):
        text = " ".join(part.split())
        if text and not text.startswith(("#", "|", "*", "-", "<!--")):
            plain = re.sub(r"<[^>]+>|[*`]", "", _LINK.sub(r"\g<text>", text))
            return re.split(r"(?<=[.!?]) ", plain)[0]
    return ""


def _faults(path: Path) -> list[str]:
    if path.suffix not in {".html", ".json", ".xml", ".txt", ".md"}:
        return []
    text = path.read_text(encoding="utf-8")
    found = [f"{path.name} has a path of this machine"] if str(ROOT) in text else []
    if path.suffix == ".html":
        loaded = _LOADED.findall(text)
        loaded += [tag for tag in _STYLED.findall(text) if "canonical" not in tag]
        found += [f"{path.name} loads from another host: {tag}" for tag in loaded]
    return found

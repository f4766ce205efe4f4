"""A hook of the documentation site: adds the pages and files outside of docs/ that pages link to.

``../CHANGELOG.md`` in a page becomes the page ``CHANGELOG.md`` of the site. Other files are copied as they
are, folders are not.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked, and what those pages link to."""
    ahead = [file for file in files if file.src_uri.endswith(".md")]
    while ahead:
        for target in _targets(ahead.pop()):
            uri = _uri(target)
            if files.get_file_from_path(uri) is None:
                added = File.generated(config, uri, abs_src_path=str(target))
                files.append(added)
                if uri.endswith(".md"):
                    ahead.append(added)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to what has been added lead to where it is on the site."""
    source = Path(str(page.file.abs_src_path)).resolve()
    here = posixpath.dirname(page.file.src_uri) or "."

    def moved(link: re.Match[str]) -> str:
        target = (source.parent / link[1]).resolve()
        if _foreign(link[1]) or not target.is_file():
            return link[0]
        return f"]({posixpath.relpath(_uri(target), here)}{link[2] or ''})"

    return _LINK.sub(moved, markdown)


def _targets(file: File) -> list[Path]:
    source = Path(str(file.abs_src_path)).resolve()
    links = (link[1] for link in _LINK.finditer(file.content_string))
    found = [(source.parent / link).resolve() for link in links if not _foreign(link)]
    return [target for target in found if target.is_file()]


def _foreign(link: str) -> bool:
    return "://" in link or link.startswith(("#", "mailto:"))


def _uri(target: Path) -> str:
    """Where a file of the repository is on the site: docs/ is its top, as the whole repository is."""
    docs = ROOT / "docs"
    return target.relative_to(docs if target.is_relative_to(docs) else ROOT).as_posix()

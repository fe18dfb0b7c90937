"""What MkDocs needs to make a site of pages that are also read as they are.

The pages of the project's root (the changelog, how to contribute) become pages of the site. The
mark ``varies`` behind a code block's language, which only ``tests/test_docs.py`` reads, goes, and
blocks with prompts are coloured (and copied) as sessions.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FROM_ROOT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}

_MARK = re.compile(r"^(```\w+) varies$", re.MULTILINE)
_SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the root's pages, their links seen from inside ``docs``."""
    for name, page in FROM_ROOT.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Prepare the code blocks; lead links to the root's pages to those of the site."""
    for name, page in FROM_ROOT.items():
        markdown = markdown.replace(f"](../{name}", f"]({page}")
    return _SESSION.sub("```pycon\n", _MARK.sub(r"\1", markdown))

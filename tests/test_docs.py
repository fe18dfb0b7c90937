"""The pages do what they show: their code and commands run, and their output is the real one.

Python and console blocks of ``docs/*.md`` are run from top to bottom, those of a page in one
namespace and one empty folder. The output shown must be the output, apart from white space. After
the word ``varies`` in a block's first line, numbers, truth values and sets of labels are not
compared, because training rounds differently on another processor; everything else is. Blocks in
another language (``sh``, ``text``) are only shown.
"""

import doctest
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import fedcover.conformal
from fedcover.cli import main
from fedcover.config import METHODS
from fedcover.config.recipes import PARTS
from fedcover.conformal import GRAPH_SCORES, RULES, SCORES
from fedcover.tables import GROUPS, LEDGER, RESULTS, THRESHOLDS

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
REFERENCE = sorted((ROOT / "docs" / "api").glob("*.md"))  # made from docstrings, holds no code
TEXTS = [*sorted(ROOT.glob("*.md")), *PAGES, *REFERENCE]

FENCE = re.compile(r"^```(?P<words>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?")
FOUND = re.compile(r'\[("[^\]]*)?\]|\b(true|false)\b|▼')
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
PATH = re.compile(r"`((?:src|tests|docs|benchmarks|scripts|paper)/[\w./-]+)`")


@dataclass(frozen=True)
class Block:
    language: str
    varies: bool
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, *marks = match["words"].split() or [""]
        assert set(marks) <= {"varies"}, f"{page.name}: unknown mark in {match['words']!r}"
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(language, "varies" in marks, match["text"], line))
    return found


def normal(output: str, varies: bool) -> str:
    """Without what widths change; with ``varies`` without what training found."""
    output = re.sub(r"[─═╌]+", "─", output)
    if varies:
        output = NUMBER.sub("#", FOUND.sub("", output))
    return " ".join(output.split())


class Checker(doctest.OutputChecker):
    def __init__(self, varies: bool) -> None:
        self.varies = varies

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(
            normal(want, self.varies), normal(got, self.varies), optionflags
        )


def run_python(page: Path, block: Block, names: dict[str, object]) -> None:
    if ">>> " not in block.text:
        exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
    report: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(Checker(block.varies), verbose=False, optionflags=flags)
    runner.run(test, out=report.append, clear_globs=False)
    assert not report, "".join(report)
    names.update(test.globs)


def run_console(block: Block, monkeypatch, capsys) -> None:
    """What is shown after a command is its stdout, or its stderr where it is refused."""
    first, *parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert first == "", "a console block begins with a command"
    for part in parts:
        command, _, shown = re.sub(r"\\\n\s*", "", part).partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "fedcover", f"only fedcover's commands can be run, not {program!r}"
        monkeypatch.setattr("sys.argv", [program, *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        output = capsys.readouterr()
        got = output.err if left.value.code else output.out
        assert normal(got, block.varies) == normal(shown, block.varies), command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_happens(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            run_python(page, block, names)
        elif block.language == "console":
            run_console(block, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("shown", "output", "varies", "same"),
    [
        ("fed  1.32   0.905", "fed 1.32 0.905\n", False, True),
        ("fed 1.32 0.905", "fed 1.33 0.905", False, False),
        ("fed 1.32 0.905▼", "fed 2.4 0.91", True, True),
        ("fed 1.32 0.905", "loc 1.32 0.905", True, False),
        ("fed 1.32 0.905", "fed 1.32 - 0.905", True, False),
        ("1,433 words", "12 words", True, True),
        ('│ p2 ┆ ["a"] ┆ true │', '│ p2 ┆ ["a", "b"] ┆ false │', True, True),
        ('│ p2 ┆ ["a"] ┆ true │', '│ p2 ┆ "a" ┆ true │', True, False),
    ],
)
def test_what_counts_as_the_same_output(shown, output, varies, same):
    assert (normal(shown, varies) == normal(output, varies)) is same


def test_the_pages_are_there_and_hold_code_that_runs():
    counts = {
        page.stem: sum(block.language in ("python", "console") for block in blocks(page))
        for page in PAGES
    }
    assert {
        "guarantee",
        "conformal-alone",
        "own-graph",
        "results",
        "engine",
        "communication",
    } <= set(counts)
    assert all(counts.values()), counts


def test_the_ten_lines_are_those_of_the_module():
    parser = doctest.DocTestParser()
    page = next(b for b in blocks(ROOT / "docs" / "conformal-alone.md") if b.language == "python")
    shown = [(e.source, e.want) for e in parser.get_examples(page.text)]
    assert shown == [
        (e.source, e.want) for e in parser.get_examples(fedcover.conformal.__doc__ or "")
    ]


def first_cells(text: str, heading: str) -> list[str]:
    """The names in the first column of the first table below a heading of a page."""
    table = text.partition(f"\n## {heading}\n")[2].partition("|---")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)`", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("file", "columns"),
    [
        ("results.csv", list(RESULTS)),
        ("groups.csv", list(GROUPS)),
        ("thresholds.csv", list(THRESHOLDS)),
        ("ledger.parquet", list(LEDGER)),
    ],
)
def test_every_column_is_explained_in_its_order(file, columns):
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert first_cells(text, file) == columns


def test_every_name_that_a_result_may_have_is_explained():
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    names = text.partition("\n### Names\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in names.splitlines() if line.startswith("| `")]
    explained = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    parts = [f"+{part}" for part in PARTS]
    assert explained == [*METHODS, *parts, *SCORES, *GRAPH_SCORES, *RULES]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(text):
    content = FENCE.sub("", text.read_text(encoding="utf-8"))
    for target, anchor in LINK.findall(content):
        file = (text.parent / target).resolve() if target else text
        assert file.exists(), f"{text.name} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor[1:] in anchors(file), f"{text.name} links to {target}{anchor}"
    for path in PATH.findall(content):
        assert (ROOT / path).exists(), f"{text.name} names {path}"


def test_the_architecture_names_files_and_packages_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:\w+\.py)?|\w+\.py)`", text))
    package = ROOT / "src" / "fedcover"
    assert not [name for name in named if not (package / name).exists()]
    below = {p.name for p in package.iterdir() if (p / "__init__.py").exists()}
    assert below <= {name.partition("/")[0] for name in named}, "a package is missing there"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as `make docs` builds it; what it warns about is an error."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (the extra `docs`)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_is_built_and_every_page_is_in_its_navigation(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    navigation = home.partition('class="md-sidebar md-sidebar--primary"')[2]
    linked = set(re.findall(r'href="([^"#]*\.html)"', navigation.partition("md-content")[0]))
    pages = {str(p.relative_to(ROOT / "docs").with_suffix(".html")) for p in [*PAGES, *REFERENCE]}
    pages |= {"contributing.html", "changelog.html"}
    assert linked == pages
    assert all((site / page).is_file() for page in pages)


class Loads(HTMLParser):
    """What a browser fetches to show a page: scripts, images, style sheets; not links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.found += [values[name] or "" for name in ("src", "srcset", "data") if name in values]
        if tag == "link" and values.get("rel") not in ("prev", "next", "canonical"):
            self.found.append(values.get("href") or "")


def loads(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8")
    styles = text if file.suffix == ".css" else "".join(re.findall(r"(?s)<style.*?</style>", text))
    found = [
        *re.findall(r"""url\(["']?([^"')]*)""", styles),
        *re.findall(r"""@import ["']([^"']*)""", styles),
    ]
    if file.suffix == ".html":
        page = Loads()
        page.feed(text)
        found += page.found
    return [one for one in found if not one.startswith("data:")]


def test_the_site_loads_nothing_from_the_network(site):
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    fetched = {(file, one) for file in files for one in loads(file)}
    assert len(fetched) > len(files)  # style sheets, scripts, fonts
    outside = {one for _, one in fetched if re.match(r"(\w+:)?//", one)}
    assert not outside
    for file, one in fetched:
        path = re.split("[?#]", one)[0]  # 404.html counts from the site's root
        place = site / path[1:] if path.startswith("/") else file.parent / path
        assert place.exists(), f"{file.name} loads {one}"


@pytest.mark.parametrize("name", ["conformal", "graphs", "simulation", "models"])
def test_the_reference_has_every_public_name(site, name):
    shown = "".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    module = import_module(f"fedcover.{name}")
    ids = set(re.findall(r'id="(fedcover\.[\w.]+)"', shown))
    names = {one.rpartition(".")[2] for one in ids if one.startswith(f"fedcover.{name}.")}
    # Without ``__all__``, what is re-exported by name is public.
    imported = {n for n, v in vars(module).items() if n[0] != "_" and not isinstance(v, ModuleType)}
    public = set(getattr(module, "__all__", imported))
    assert public
    assert public <= names, public - names

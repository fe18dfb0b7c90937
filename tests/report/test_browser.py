"""The page in a real browser, from disk, with every request refused."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from fedcover.report.page import write_grid_page, write_run_page

PATIENCE = 120_000  # milliseconds: other workers may have the cores
NAMES = ("chromium", "chromium-browser", "google-chrome")
HOW = "install Chromium (on Debian: apt-get install chromium) to run the page's browser tests"


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason=f"playwright is missing; {HOW}")
    with sync_api.sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        found = next(filter(None, map(shutil.which, NAMES)), None)
        if found is None and not own.exists():
            pytest.skip(f"there is no browser here; {HOW}")
        launched = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox"], timeout=PATIENCE
        )
        yield launched
        launched.close()


@pytest.fixture
def visit(browser):
    """``visit(page, width, theme, hash)``: an open page; whatever it complains of is an error."""
    complaints, opened = [], []

    def open_page(path, width=1280, theme="light", address=""):
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=theme,
            reduced_motion="reduce",
            offline=True,
        )
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda m: complaints.append(f"console {m.type}: {m.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on(
            "request",
            lambda r: complaints.append(f"request: {r.url}") if r.url != page.url else None,
        )
        page.goto(f"{path.resolve().as_uri()}{address}", wait_until="commit")
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        opened.append(context)
        return page

    yield open_page
    for context in opened:
        context.close()
    own = [c for c in complaints if not (c.startswith("request: file:") and "report.html" in c)]
    assert own == []


def sets_of(folder, **cell):
    table = pl.read_parquet(folder / "sets.parquet").filter(seed=0, **cell)
    return dict(table.select("node", "set").iter_rows())


def shown_set(page):
    return json.loads(page.locator("[data-set]").get_attribute("data-set"))


def alt(page, title):
    return page.locator(f"figure[data-title='{title}'] .plot").get_attribute("aria-label")


def find(page, node):
    page.locator("#find").fill(node)
    page.locator("#find").press("Enter")
    page.wait_for_selector(f"h3[data-node={json.dumps(node)}]")


def test_the_verdict_and_all_charts_are_there(visit, cora_folder):
    page = visit(cora_folder / "report.html")
    assert page.locator(".card").count() == 3
    titles = page.locator("figure.chart").evaluate_all("all => all.map(f => f.dataset.title)")
    assert titles[:3] == [
        "Set size against level",
        "Coverage against level",
        "How large the sets are",
    ]
    assert [title for title in titles if title.startswith("Each client")] == [
        "Each client: coverage",
        "Each client: set size",
    ]
    empty = "all => all.filter(f => !f.querySelector('.plot svg *')).length"
    assert page.locator("figure.chart").evaluate_all(empty) == 0
    assert all(len(alt(page, title)) > 40 for title in titles)
    rows = page.locator("figure[data-title='Set size against level'] tbody tr")
    assert rows.count() == 3 * 3  # methods and levels
    inked = """canvas => { const pen = canvas.getContext("2d");
        const held = pen.getImageData(0, 0, canvas.width, canvas.height).data;
        return held.some((value, i) => i % 4 === 3 && value > 0); }"""
    assert page.locator("canvas").evaluate(inked)


def test_controls_change_cards_charts_and_the_address(visit, cora_folder):
    page = visit(cora_folder / "report.html")
    results = pl.read_csv(cora_folder / "results.csv")

    def size(method, score, alpha, rule="exact"):
        cell = {"method": method, "score": score, "alpha": alpha, "quantile": rule}
        return f"{results.filter(**cell)['set_size'].mean():.2f}"

    def chart(title):
        return page.locator(f"figure[data-title='{title}'] .plot").inner_html()

    before = chart("Set size against level")
    assert f"loc {size('loc', 'lac', 0.1)}" in alt(page, "Set size against level")
    page.locator("input[name=score][value=aps]").check()
    assert f"loc {size('loc', 'aps', 0.1)}" in alt(page, "Set size against level")
    assert chart("Set size against level") != before
    assert "score=aps" in page.url
    page.locator("input[name=alpha][value='0.2']").check()
    assert f"fed {size('fed', 'aps', 0.2)}" in alt(page, "Set size against level")
    assert "At level 0.8, with the score aps" in page.locator("#verdict-for").inner_text()
    page.locator("[name=quantile]").select_option("average")
    assert page.locator(".card .answer").all_inner_texts()[:2] == [
        "None with this rule",
        "There is none",
    ]
    page.locator("input[name=method][value=loc]").check()
    assert "The method loc at level 0.8" in page.locator("#groups-for").inner_text()
    again = visit(cora_folder / "report.html", address=f"#{page.url.partition('#')[2]}")
    assert alt(again, "Set size against level") == alt(page, "Set size against level")
    assert "The method loc at level 0.8" in again.locator("#groups-for").inner_text()


@pytest.mark.parametrize(
    "cell",
    [
        {"method": "fed", "score": "lac", "quantile": "exact", "alpha": 0.1},
        {"method": "central", "score": "aps", "quantile": "average", "alpha": 0.05},
    ],
)
def test_the_explorer_shows_the_stored_sets(visit, cora_folder, cell):
    address = "#" + "&".join(f"{name}={value}" for name, value in cell.items())
    page = visit(cora_folder / "report.html", address=address)
    stored = sets_of(cora_folder, **cell)
    nodes = sorted(stored, key=lambda node: (len(stored[node]), node))
    for node in nodes[:: len(nodes) // 6]:  # of all sizes
        find(page, node)
        assert shown_set(page) == stored[node]
        reasons = page.locator(".probs tr.in .reason").all_inner_texts()
        assert len(reasons) == len(stored[node])
        assert all(reason.startswith("in, since") for reason in reasons)
        outside = page.locator(".probs tr.out .reason").all_inner_texts()
        assert len(outside) == 7 - len(stored[node])
        assert all(reason.startswith("out, ") for reason in outside)


def test_presets_neighbours_and_a_node_that_is_not_there(visit, cora_folder):
    page = visit(cora_folder / "report.html", address="#method=fed")
    stored = pl.read_parquet(cora_folder / "sets.parquet").filter(
        method="fed", score="lac", quantile="exact", alpha=0.1, seed=0
    )
    page.get_by_role("button", name="A miss").click()
    node = page.locator("h3[data-node]").get_attribute("data-node")
    assert stored.filter(node=node)["covered"].to_list() == [False]
    assert "is not in it" in page.locator(".why").inner_text()
    page.get_by_role("button", name="Largest set").click()
    assert len(shown_set(page)) == stored["size"].max()
    page.get_by_role("button", name="Boundary node").click()
    node = page.locator("h3[data-node]").get_attribute("data-node")
    nodes = pl.read_parquet(cora_folder / "nodes.parquet")
    lost = nodes.filter(node=node)["lost"].item()
    assert lost > 0
    kept = nodes.filter(node=node)["degree"].item() - lost
    assert page.locator(".near .tag.lost").count() == max(min(lost, 40 - kept), 0)  # lost ones last
    few = nodes.filter(pl.col("degree") < 10, pl.col("lost") > 0, role="test").row(0, named=True)
    find(page, few["node"])
    assert page.locator(".near .tag.lost").count() == few["lost"]
    neighbour = page.locator(".near a").first.inner_text()
    page.locator(".near a").first.click()
    assert page.locator("h3[data-node]").get_attribute("data-node") == neighbour
    training = nodes.filter(role="training")["node"][0]
    find(page, training)
    assert "It has no set: it is a training node." in page.locator("#panel").inner_text()
    page.locator("#find").fill("nobody")
    page.locator("#find").press("Enter")
    assert "There is no node nobody" in page.locator("#panel").inner_text()


# A test node that stands alone, away from the buttons: a click on it can mean no other node.
LONELY = """() => { const at = shownNodes.ids.map((_, i) => placeOf(i));
    const room = (i) => d3.min(at, ([x, y], j) => i === j ? Infinity
      : Math.hypot(x - at[i][0], y - at[i][1]));
    const free = shownNodes.explained.filter((i) => at[i][0] < 0.7 * drawing.canvas.clientWidth
      && shownNodes.ids[i] !== state.node);
    const node = free[d3.maxIndex(free, room)];
    return { id: shownNodes.ids[node], at: at[node], room: room(node) }; }"""


def test_a_click_on_the_drawing_opens_that_node(visit, cora_folder):
    page = visit(cora_folder / "report.html", address="#method=fed")
    found = page.evaluate(LONELY)
    assert found["room"] > 3  # pixels; a click is rounded to whole ones
    x, y = found["at"]
    page.locator("canvas").click(position={"x": x, "y": y})
    assert page.locator("h3[data-node]").get_attribute("data-node") == found["id"]
    assert (
        f"Held by client {holder(cora_folder, found['id'])} " in page.locator("#panel").inner_text()
    )


def holder(folder, node):
    return pl.read_parquet(folder / "nodes.parquet").filter(node=node)["client"].item()


def test_the_keyboard_is_enough(visit, cora_folder):
    page = visit(cora_folder / "report.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "verdict"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "lac"
    page.keyboard.press("ArrowRight")
    assert "with the score aps" in page.locator("#verdict-for").inner_text()
    assert page.evaluate("document.activeElement.value") == "aps"  # the focus stays
    page.locator("#find").focus()
    first = page.locator("h3[data-node]").get_attribute("data-node")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Next →"
    page.keyboard.press("Enter")
    assert page.locator("h3[data-node]").get_attribute("data-node") != first
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"


def test_a_neighbours_link_keeps_the_focus_and_a_status_line_says_what_is_shown(visit, cora_folder):
    cell = {"method": "fed", "score": "lac", "quantile": "exact", "alpha": 0.1}
    page = visit(cora_folder / "report.html", address="#method=fed")
    page.get_by_role("button", name="Boundary node").click()
    page.locator(".near a").first.focus()
    page.keyboard.press("Enter")
    shown = page.locator("h3[data-node]").get_attribute("data-node")
    assert page.evaluate("document.activeElement.dataset.node") == shown
    assert page.locator("#panel[aria-live]").count() == 0
    table = pl.read_parquet(cora_folder / "sets.parquet").filter(seed=0, **cell)
    for covered, words in ((True, "in it"), (False, "not in it")):
        node, members = table.filter(covered=covered).select("node", "set").row(0)
        find(page, node)
        said = f"Node {node}: set {{{', '.join(members)}}}, true label {words}."
        assert page.get_by_role("status").inner_text() == said
    nodes = pl.read_parquet(cora_folder / "nodes.parquet")
    training = nodes.filter(role="training")["node"][0]
    find(page, training)
    said = f"Node {training}: a training node, which has no set."
    assert page.get_by_role("status").inner_text() == said


def test_tables_stay_open_and_scroll_by_keyboard(visit, cora_folder):
    page = visit(cora_folder / "report.html")
    figure = page.locator("figure[data-title='Coverage against level']")
    figure.locator("summary").click()
    page.locator("input[name=score][value=aps]").check()
    assert figure.locator("table").is_visible()
    other = page.locator("figure[data-title='Set size against level'] table")
    assert not other.is_visible()
    figure.locator("summary").click()
    page.locator("input[name=score][value=lac]").check()
    assert not figure.locator("table").is_visible()
    boxes = page.locator(".scroll").evaluate_all(
        "all => all.map(box => [box.tabIndex, box.getAttribute('aria-label')])"
    )
    assert len(boxes) > 10  # charts, one node, the ledger and the settings
    assert all(place == 0 and name for place, name in boxes)


def test_notes_speak_of_a_band_only_where_one_is_drawn(visit, cora_folder, toy_folder):
    def note(folder, address):
        page = visit(folder / "report.html", address=address)
        figure = page.locator("figure[data-title='Coverage against level']")
        band = figure.locator(".plot [fill='var(--band)'] rect, .plot rect[fill='var(--band)']")
        return figure.locator("figcaption").inner_text(), band.count()

    said, bands = note(cora_folder, "#score=lac&quantile=exact")
    assert "blue band" in said
    assert bands == 3  # levels
    assert "± three standard errors" in said
    for folder, address, promise in (
        (toy_folder, "#score=aps-det&quantile=exact", "promises the target or more"),
        (cora_folder, "#score=lac&quantile=average", "has no guarantee"),
    ):
        said, bands = note(folder, address)
        assert promise in said
        assert "band" not in said
        assert bands == 0


# Every text with the ground it stands on: backgrounds of what holds it, and in a chart what was
# drawn below it. Colours are painted to be read, as style sheets spell them in many ways.
CONTRAST = """() => {
    const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
      .getContext("2d", { willReadFrequently: true });
    const seen = new Map();
    const read = (colour) => { if (!seen.has(colour)) { pen.clearRect(0, 0, 1, 1);
        pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
        seen.set(colour, [r, g, b, a / 255]); }
      return seen.get(colour); };
    const over = ([r, g, b, a], ground, part = 1) =>
      [r, g, b].map((v, i) => v * a * part + ground[i] * (1 - a * part));
    const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92
        : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
      return (x + 0.05) / (y + 0.05); };
    const ground = (element) => { if (!element) return [255, 255, 255];
      const own = read(getComputedStyle(element).backgroundColor);
      return over(own, ground(element.parentElement)); };
    const drawn = (text) => { const svg = text.ownerSVGElement, box = text.getBoundingClientRect();
      const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
      return [...svg.querySelectorAll("rect")].reduce((below, rect) => {
        const own = rect.getBoundingClientRect(), css = getComputedStyle(rect);
        const under = rect.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING;
        const holds = own.left <= x && x <= own.right && own.top <= y && y <= own.bottom;
        return under && holds && css.fill !== "none" ? over(read(css.fill), below, +css.fillOpacity)
          : below; }, ground(svg)); };
    const found = [];
    document.querySelectorAll("details").forEach((details) => { details.open = true; });
    for (const e of document.querySelectorAll("body *")) {
      const own = [...e.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE);
      const said = own.map((n) => n.data.trim()).join("");
      if (!said || e.closest("script, noscript, .visually-hidden, .skip, .tip, datalist")) continue;
      if (!e.getClientRects().length) continue;
      const css = getComputedStyle(e), inside = e.ownerSVGElement !== undefined;
      const text = inside ? e.closest("text") : null, below = text ? drawn(text) : ground(e);
      const ink = over(read(text ? css.fill : css.color), below);
      found.push([ratio(ink, below), said.slice(0, 40), e.closest("[id]")?.id ?? ""]); }
    const css = getComputedStyle(document.documentElement);
    for (const size of d3.range(MOST + 1)) { // also of sets that this run does not have
      const [below, ink] = ["z", "t"].map((kind) =>
        read(css.getPropertyValue(`--${kind}${size}`).trim()).slice(0, 3));
      found.push([ratio(ink, below), `sets of ${size}`, "colours"]); }
    const marks = [...document.querySelectorAll("#legend path")].map((path) => {
      const below = ground(path.closest("li"));
      return [ratio(over(read(getComputedStyle(path).stroke), below), below), "mark", "legend"]; });
    return { texts: found, marks }; }"""


@pytest.mark.parametrize("width", [375, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_width_and_theme_scrolls_sideways_or_lacks_contrast(visit, cora_folder, width, theme):
    page = visit(cora_folder / "report.html", width, theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    measured = page.evaluate(CONTRAST)
    assert {"legend", "cards", "panel", "sizes", "by-level"} <= {t[2] for t in measured["texts"]}
    assert [text for text in measured["texts"] if text[0] < 4.5] == []
    assert len(measured["marks"]) == 3
    assert [mark for mark in measured["marks"] if mark[0] < 3] == []
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") != theme


def test_hostile_names_are_only_text(visit, toy_folder):
    page = visit(toy_folder / "report.html")
    page.on("dialog", lambda dialog: pytest.fail(f"a name ran as code: {dialog.message}"))
    find(page, '"><img src=x onerror=alert(1)>')
    assert page.locator("main img, main b").count() == 0
    assert page.locator("h1").inner_text() == "<toy>, 3 clients"


def test_the_lead_says_how_the_graph_was_cut_where_it_is_known(visit, cora_folder, tmp_path):
    info = json.loads((cora_folder / "run.json").read_text())
    share = sum(info["cut_edges"]) / 2 / info["graph"]["edges"]
    said = visit(cora_folder / "report.html").locator("#lead").inner_text()
    shown = f"{100 * share:.{1 if share < 0.0995 else 0}f}%"
    divided = "A graph of 2,485 nodes, divided among 3 clients who do not share it"
    assert said.startswith(f"{divided} (metis; {shown} of its edges lie between clients). For each")
    del info["cut_edges"]
    other = shutil.copytree(cora_folder, tmp_path / "run")
    (other / "run.json").write_text(json.dumps(info))
    said = visit(write_run_page(other)).locator("#lead").inner_text()
    assert said.startswith(f"{divided}. For each")


def test_an_old_folder_says_why_there_is_no_drawing(visit, toy_folder, tmp_path):
    old = shutil.copytree(toy_folder, tmp_path / "run")
    for name in ("nodes", "edges", "scores"):
        (old / f"{name}.parquet").unlink()
    page = visit(write_run_page(old))
    assert page.locator(".card").count() == 3
    for place in ("#drawing", "#node"):
        assert "holds no nodes.parquet" in page.locator(place).inner_text()


def published(dataset="cora"):
    sizes = {"aps": 3.0, "lac": 4.0, "raps": 5.0}
    return pl.DataFrame(
        [
            {
                "dataset": dataset,
                "clients": k,
                "method": "fed",
                "score": score,
                "level": 0.9,
                "set_size": size + k,
                "set_size_sd": 0.1,
            }
            for score, size in sizes.items()
            for k in (3, 10)
        ]
    )


def test_the_grid_page_follows_its_controls(visit, grid_rows, tmp_path):
    target = tmp_path / "report.html"
    write_grid_page(grid_rows, target, title="A grid", published=published(), notes=["Noted."])
    page = visit(target, 375, "dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert page.locator(".card .answer").first.inner_text() == "fed+prior"
    title = "Set size against the number of clients"
    assert "14.00" in page.locator(f"figure[data-title='{title}'] table").text_content()
    page.locator("input[name=clients][value='10']").check()
    rows = page.locator("figure[data-title='Each client: coverage'] tbody tr")
    assert rows.count() == 10
    assert "clients=10" in page.url
    page.locator("input[name=dataset][value=pubmed]").check()
    assert "14.00" not in page.locator(f"figure[data-title='{title}'] table").text_content()
    assert "Noted." in page.locator("#notes").inner_text()


def test_rings_are_of_the_chosen_score_if_published_and_never_of_a_variant(
    visit, grid_rows, tmp_path
):
    rows = [
        grid_rows,
        grid_rows.with_columns(score=pl.lit("dlac")),
        grid_rows.with_columns(variant=pl.lit("GraphSAGE")),
    ]
    target = tmp_path / "report.html"
    write_grid_page(pl.concat(rows), target, title="A grid", published=published())
    page = visit(target)
    figure = page.locator("figure[data-title='Set size against the number of clients']")

    def rings():
        drawn = figure.locator("[stroke-dasharray='2,1.5'] title").all_text_contents()
        return sorted(title.rpartition(": ")[2] for title in drawn)

    assert "the published sizes (lac)" in figure.locator("figcaption").inner_text()
    assert rings() == ["14.00 ± 0.10", "7.00 ± 0.10"]
    page.locator("input[name=score][value=dlac]").check()
    assert "the published sizes (aps)" in figure.locator("figcaption").inner_text()
    assert rings() == ["13.00 ± 0.10", "6.00 ± 0.10"]
    page.locator("input[name=variant][value=GraphSAGE]").check()
    assert "published" not in figure.text_content().lower()
    assert rings() == []

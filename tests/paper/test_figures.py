from itertools import product
from xml.etree import ElementTree

import pytest

from fedcover.paper.definition import read_all
from fedcover.paper.figures import draw
from fedcover.paper.set_sizes import cells_of


@pytest.fixture
def drawn(frame):
    """``drawn(target, preset, *rows)``: the target's figure of these rows."""

    def make(target, preset, *rows):
        definition = read_all()[target]
        return draw(cells_of(definition, preset, frame(*rows)), definition.figure, "A title")

    return make


def texts(svg: bytes) -> str:
    comments = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    root = ElementTree.fromstring(svg, parser=comments)
    return " ".join(node.text or "" for node in root.iter() if node.tag is ElementTree.Comment)


def test_lines_have_panels_series_and_published_marks(drawn):
    rows = [
        {"method": m, "clients": k, "alpha": a, "seed": s, "set_size": s + k}
        for m, k, a, s in product(("loc", "fed"), (3, 5), (0.05, 0.1), (0, 1))
    ]
    figure = drawn("clients", "default", *rows)
    said = texts(figure["svg"])
    for word in (
        "level 0.95",
        "level 0.90",
        "loc",
        "fed, published",
        "clients K",
        "A title",
        "coverage − level",
    ):
        assert word in said
    assert figure["png"].startswith(b"\x89PNG")


def test_the_same_numbers_give_the_same_bytes(drawn):
    rows = [{"alpha": a, "coverage": 1 - a, "clients": k} for a in (0.1, 0.5) for k in (3, 5)]
    assert drawn("coverage", "default", *rows) == drawn("coverage", "default", *rows)


def test_coverage_shows_its_promise_and_the_band_only_of_a_rule_that_has_one(drawn):
    rows = [{"alpha": a, "coverage": 1 - a} for a in (0.1, 0.5)]
    assert "theorem's band" in texts(drawn("coverage", "default", *rows)["svg"])
    averaged = [{"alpha": a, "quantile": "average", "score": "aps-det"} for a in (0.1, 0.5)]
    said = texts(drawn("coverage", "paper", *averaged)["svg"])
    assert "promised" in said
    assert "band" not in said


def test_the_heat_map_writes_its_numbers(drawn):
    rows = [{"score": "raps", "alpha": a, "method": "gen", "variant": v, "set_size": 1.25}
            for a in (0.1, 0.5) for v in ("", "ε = 1")]  # fmt: skip
    said = texts(drawn("privacy", "default", *rows)["svg"])
    assert "gen, ε = 1" in said
    assert said.count("1.25") == 4
    assert said.count("(0.900)") == 4

"""Columns of own tables: what they are called, numbers, words, gaps, labels that are not known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder

from fedcover.errors import DataError, UsageError
from fedcover.graphs import check_graph, load, schema_of, split
from fedcover.graphs.features import MAX_CATEGORIES
from fedcover.graphs.schema import Schema, parse_schema
from fedcover.graphs.spelling import SYNONYMS, meanings, names_of
from fedcover.graphs.splits import NO_ROLE

NODES = """id,label,age,ward,smokes,kids
a,x,30,north,true,0
b,y,41.5,south,false,1
c,x,29,north,true,1
d,y,50,east,true,0
"""
EDGES = "source,target\na,b\nb,a\nc,c\na,b\n"


def folder(path: Path, nodes: str = NODES, edges: str = EDGES) -> Path:
    path.mkdir(exist_ok=True)
    (path / "nodes.csv").write_text(nodes)
    (path / "edges.csv").write_text(edges)
    return path


def refusal(path: Path, **arguments: object) -> str:
    with pytest.raises(DataError) as caught:
        load(path, **arguments)  # type: ignore[arg-type]
    return str(caught.value)


def test_words_become_categories_by_hand(tmp_path: Path) -> None:
    graph = load(folder(tmp_path))
    assert graph.feature_names == [
        *("age", "ward=east", "ward=north", "ward=south", "smokes", "kids"),
    ]
    assert graph.x.to_dense().tolist() == [
        [30, 0, 1, 0, 1, 0],
        [41.5, 0, 0, 1, 0, 1],
        [29, 0, 1, 0, 1, 1],
        [50, 1, 0, 0, 1, 0],
    ]
    assert graph.numeric.tolist() == [True, False, False, False, False, False]
    assert schema_of(graph) == Schema(
        (
            ("age", "number"),
            ("ward", ("east", "north", "south")),
            ("smokes", "binary"),
            ("kids", "binary"),
        ),
        ("x", "y"),
    )


def test_isolated_nodes_and_edges_of_all_sorts(tmp_path: Path) -> None:
    graph = load(folder(tmp_path))
    assert graph.num_nodes == 4  # c and d have no edge but c's own loop
    assert graph.edge_index.tolist() == [[0, 1], [1, 0]]


def test_csv_and_parquet_give_the_same_graph(tmp_path: Path) -> None:
    csv = load(folder(tmp_path / "csv"))
    other = tmp_path / "parquet"
    other.mkdir()
    pl.read_csv(tmp_path / "csv" / "nodes.csv").write_parquet(other / "nodes.parquet")
    pl.read_csv(tmp_path / "csv" / "edges.csv").write_parquet(other / "edges.parquet")
    parquet = load(other)
    assert torch.equal(csv.x.to_dense(), parquet.x.to_dense())
    assert csv.columns == parquet.columns


words = st.text(st.characters(categories=["L"]), min_size=1, max_size=3).filter(
    lambda word: word.lower() not in ("nan", "inf", "true", "false", "infinity")
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(words, min_size=1, max_size=6, unique=True).flatmap(
        lambda known: st.lists(st.sampled_from(known), min_size=3, max_size=12)
    )
)
def test_categories_are_those_of_scikit_learn(tmp_path_factory, ward: list[str]) -> None:
    path, ward = tmp_path_factory.mktemp("g"), [*ward, ward[0]]
    ids = list(range(len(ward)))
    pl.DataFrame({"id": ids, "label": [i % 2 for i in ids], "ward": ward}).write_csv(
        path / "nodes.csv"
    )
    (path / "edges.csv").write_text("source,target\n")
    if len(set(ward)) == len(ward):
        return
    encoder = OneHotEncoder(sparse_output=False)
    expected = encoder.fit_transform(np.array(ward, dtype=object)[:, None])
    graph = load(path)
    assert np.array_equal(graph.x.to_dense().numpy(), expected)
    assert graph.feature_names == [f"ward={word}" for word in encoder.categories_[0]]


@pytest.mark.parametrize(
    ("nodes", "fragment"),
    [
        (
            "id,label,name\n" + "".join(f"{i},{i % 2},n{i}\n" for i in range(8)),
            "nodes.csv, column 'name': has 8 different words for 8 nodes, so that it looks like an "
            "identifier; leave it out",
        ),
        (
            "id,label,zip\n" + "".join(f"{i},{i % 2},z{i // 2}\n" for i in range(202)),
            "column 'zip': has 101 different words for 202 nodes",
        ),
        (NODES.replace("41.5", "many"), "line 3, column 'age': 'many' is not a number."),
        (NODES.replace("41.5", "-inf"), "line 3, column 'age': is not a finite float32 number."),
        (NODES.replace("south", ""), "line 3, column 'ward': is empty; fill it in, or have"),
        (NODES.replace("41.5", ""), "line 3, column 'age': is empty; fill it in, or have"),
        ("id,label,age\na,x,\nb,y,\n", "line 2, column 'age': is empty"),
    ],
)
def test_what_is_no_feature(tmp_path: Path, nodes: str, fragment: str) -> None:
    assert fragment in refusal(folder(tmp_path, nodes))


def test_a_hundred_categories_are_not_too_many(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i % 2},z{i % MAX_CATEGORIES}\n" for i in range(2 * MAX_CATEGORIES))
    assert load(folder(tmp_path, "id,label,zip\n" + rows, "source,target\n")).x.shape[1] == 100


# --- gaps


GAPS = (
    NODES.replace("41.5", "")
    .replace("29", "nan")
    .replace("south", "")
    .replace("east,true,0", "east,true,")
)


def test_gaps_are_marked_for_imputing(tmp_path: Path) -> None:
    graph = load(folder(tmp_path, GAPS), missing="impute")
    assert sorted(map(tuple, graph.missing.T.tolist())) == [(1, 0), (2, 0), (3, 4)]
    assert graph.feature_names == ["age", "ward=east", "ward=north", "smokes", "kids"]
    assert graph.x.to_dense()[1].tolist() == [0, 0, 0, 0, 1]  # no ward at all
    assert check_graph(graph) is graph
    assert "line 3, column 'age'" in refusal(tmp_path)


def test_infinite_numbers_and_columns_without_any_are_never_imputed(tmp_path: Path) -> None:
    wrong = folder(tmp_path, GAPS.replace("50", "inf"))
    assert "line 5, column 'age': is not a finite" in refusal(wrong, missing="impute")
    nothing = folder(tmp_path, "id,label,age\na,x,\nb,y,nan\n")
    assert "column 'age': has no value at all" in refusal(nothing, missing="impute")


def test_another_word_for_missing_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing is 'drop'; it must be one of refuse, impute"):
        load(folder(tmp_path), missing="drop")


# --- headers


TABLES = {
    "nodes": ("id", "label", "client", "split"),
    "edges": ("source", "target"),
    "links": ("node", "party", "other"),
}


@pytest.mark.parametrize("table", TABLES)
def test_every_synonym_has_one_meaning_in_a_table(table: str) -> None:
    wanted = TABLES[table]
    for meaning in wanted:
        for name in names_of(meaning):
            for spelt in (f" {name.upper()} ", name.replace("_", " "), name.replace("_", "-")):
                assert meanings([spelt], wanted) == [meaning]
    everything = [name for meaning in wanted for name in names_of(meaning)]
    assert len(everything) == len(set(everything))


def test_every_word_that_has_synonyms_is_a_column() -> None:
    assert SYNONYMS.keys() <= {meaning for wanted in TABLES.values() for meaning in wanted}


def test_header_variants(tmp_path: Path) -> None:
    nodes = "\ufeff Node_ID , Class,PARTY, Age,Set\n" + (
        "1,x,p,3,train\n2,y,p,4,calib\n3,x,p,5,test\n"
    )
    graph = load(folder(tmp_path, nodes, "U;, From ,To\n0,1,2\n".replace("U;", "weight")))
    assert graph.node_ids == ["1", "2", "3"]
    assert graph.feature_names == ["Age"]
    assert graph.client_names == ["p"]
    assert graph.split.tolist() == [0, 2, 3]
    assert graph.edge_index.tolist() == [[0, 1], [1, 0]]


def test_two_columns_of_one_meaning_are_refused(tmp_path: Path) -> None:
    nodes = NODES.replace("kids", "Y")
    assert (
        "nodes.csv, line 1: the columns 'label' and 'Y' both mean 'label'; keep or rename one"
        in refusal(folder(tmp_path, nodes))
    )
    edges = "source,src,target\na,a,b\n"
    assert "'source' and 'src' both mean 'source'" in refusal(folder(tmp_path, NODES, edges))
    assert "column 'age': stands twice" in refusal(folder(tmp_path, NODES.replace("kids", " age")))


def test_an_error_names_the_column_as_the_file_does(tmp_path: Path) -> None:
    nodes = NODES.replace("id,", "Node,").replace("b,y", "a,y")
    assert "line 3, column 'Node': the id 'a' has been used" in refusal(folder(tmp_path, nodes))


# --- labels that are not known


UNKNOWN = """id,label,client,split,age
a,x,p,train,1
b,y,p,calib,2
c,,p,,3
d,x,p,test,4
e,,p,test,5
"""


def test_a_node_without_a_label_stays_and_has_no_role(tmp_path: Path) -> None:
    graph = load(folder(tmp_path, UNKNOWN, "source,target\na,c\n"))
    assert graph.y.tolist() == [0, 1, -1, 0, -1]
    assert graph.split.tolist() == [0, 2, NO_ROLE, 3, NO_ROLE]
    assert graph.edge_index.tolist() == [[0, 2], [2, 0]]
    assert check_graph(graph) is graph


def test_only_a_node_without_a_label_may_lack_a_split(tmp_path: Path) -> None:
    nodes = UNKNOWN.replace("b,y,p,calib", "b,y,p,")
    assert "line 3, column 'split': is empty." in refusal(folder(tmp_path, nodes, EDGES))


def test_roles_are_dealt_to_labelled_nodes_as_if_they_were_alone() -> None:
    labelled = np.arange(60) % 3 > 0
    client = np.arange(60) % 2
    roles = split(client, np.random.default_rng(5), labelled=labelled)
    alone = split(client[labelled], np.random.default_rng(5))
    assert (roles[~labelled] == NO_ROLE).all()
    assert np.array_equal(roles[labelled], alone)
    everyone = split(client, np.random.default_rng(5), labelled=np.ones(60, dtype=bool))
    assert np.array_equal(everyone, split(client, np.random.default_rng(5)))


def test_a_client_without_labels_is_refused_by_name() -> None:
    client = np.repeat([0, 1], 10)
    with pytest.raises(DataError, match="Client west has no node with a label"):
        split(client, np.random.default_rng(0), labelled=client == 0, names=["east", "west"])


# --- a later graph, read alike


def test_a_later_graph_has_the_same_columns_and_numbers(tmp_path: Path) -> None:
    schema = schema_of(load(folder(tmp_path)))
    assert parse_schema(schema.to_json(), "again") == schema
    later = "id,label,age,ward,smokes,kids\nz,y,31,south,1,1\n"
    graph = load(folder(tmp_path, later, "source,target\n"), schema=schema)
    assert graph.x.to_dense().tolist() == [[31, 0, 0, 1, 1, 1]]
    assert graph.y.tolist() == [1]
    assert graph.columns == list(schema.features)
    assert graph.label_names == ["x", "y"]


def test_a_later_graph_needs_no_labels(tmp_path: Path) -> None:
    schema = schema_of(load(folder(tmp_path)))
    for later in (
        "id,label,age,ward,smokes,kids\nz,,31,south,1,1\n",
        "id,age,ward,smokes,kids\nz,31,south,1,1\n",
    ):
        graph = load(folder(tmp_path, later, "source,target\n"), schema=schema)
        assert graph.y.tolist() == [-1]
        assert graph.label_names == ["x", "y"]


@pytest.mark.parametrize(
    ("later", "fragment"),
    [
        (
            "z,y,31,west,1,1",
            "line 3, column 'ward': 'west' is not among the agreed categories east",
        ),
        ("z,q,31,east,1,1", "line 3, column 'label': 'q' is not among the agreed labels."),
        ("z,y,old,east,1,1", "line 3, column 'age': 'old' is not a number."),
        ("z,y,31,east,1,7", "column 'kids' has other values than 0 and 1, which are agreed."),
    ],
)
def test_what_a_later_graph_may_not_have(tmp_path: Path, later: str, fragment: str) -> None:
    schema = schema_of(load(folder(tmp_path)))
    nodes = f"id,label,age,ward,smokes,kids\na,x,1,east,0,0\n{later}\nc,x,1,east,0,0\n"
    assert fragment in refusal(folder(tmp_path, nodes, "source,target\n"), schema=schema)


def test_a_later_graph_with_other_columns(tmp_path: Path) -> None:
    schema = schema_of(load(folder(tmp_path)))
    nodes = "id,label,age,ward,kids\na,x,1,east,0\n"
    assert "column 'smokes' is missing, the agreed feature 3" in refusal(
        folder(tmp_path, nodes, "source,target\n"), schema=schema
    )


def test_a_later_graph_with_the_columns_in_another_order(tmp_path: Path) -> None:
    first = load(folder(tmp_path))
    table = pl.read_csv(tmp_path / "nodes.csv", infer_schema=False)
    table.select(table.columns[::-1]).write_csv(tmp_path / "nodes.csv")
    again = load(tmp_path, schema=schema_of(first))
    assert again.feature_names == first.feature_names
    assert torch.equal(again.x.to_dense(), first.x.to_dense())


def test_a_feature_of_an_agreed_schema_may_be_called_like_a_label(tmp_path: Path) -> None:
    schema = Schema((("x", "number"), ("y", "number")), ("no", "yes"))
    nodes = "id,label,x,y\na,no,1,2\nb,yes,3,4\n"
    graph = load(folder(tmp_path, nodes, "source,target\n"), schema=schema)
    assert graph.x.tolist() == [[1, 2], [3, 4]]


def test_named_graphs_have_no_schema() -> None:
    cora = load("cora")
    assert "numeric" not in cora
    with pytest.raises(UsageError, match="schema is for a folder of tables"):
        load("cora", schema=Schema((("a", "number"),), ("x", "y")))
    with pytest.raises(DataError, match="cora was not read from tables"):
        schema_of(cora)


def test_an_old_schema_keeps_its_spelling_and_fingerprint() -> None:
    old = '{"features":[["age","number"],["smokes","binary"]],"labels":["ill","well"]}'
    schema = parse_schema(old, "schema.json")
    assert schema.to_json() == old
    assert schema.fingerprint == (
        "f57ca1023a663bd9623df0b1703670f1ec478d21c2d1d2d4a47a598a23d432c9"
    )


@pytest.mark.parametrize(
    "kind",
    ['{"category":[]}', '{"category":["a","a"]}', '{"category":[1]}', '{"words":["a"]}', "[]"],
)
def test_a_category_needs_its_words(kind: str) -> None:
    text = f'{{"features":[["a",{kind}]],"labels":["x","y"]}}'
    with pytest.raises(DataError, match="feature 'a' has"):
        parse_schema(text, "schema.json")

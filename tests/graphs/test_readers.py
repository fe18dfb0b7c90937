from datetime import date

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.errors import DataError
from fedcover.graphs import read_folder
from fedcover.graphs.readers import UNCLEAR_LABELS

NODES = "id,label,a,b\nu,x,1,0.5\nv,y,2,-1\nw,x,3,1e-3\n"
EDGES = "source,target\nu,v\nv,w\n"


def folder(path, nodes=NODES, edges=EDGES):
    for name, content in (("nodes.csv", nodes), ("edges.csv", edges)):
        if content is not None:
            data = content if isinstance(content, bytes) else content.encode()
            (path / name).write_bytes(data)
    return path


def parquet(path, nodes=None, edges=None):
    nodes = {"id": ["u", "v", "w"], "label": [10, 9, 10], "a": [1.0, 2.0, 3.0]} | (nodes or {})
    edges = {"source": ["u", "v"], "target": ["v", "w"]} | (edges or {})
    pl.DataFrame({k: v for k, v in nodes.items() if v is not None}).write_parquet(
        path / "nodes.parquet"
    )
    pl.DataFrame(edges).write_parquet(path / "edges.parquet")
    return path


def refusal(path):
    with pytest.raises(DataError) as caught:
        read_folder(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert message.startswith(str(path))
    return message.removeprefix(str(path)).lstrip("/ ")


def test_csv_by_hand(tmp_path):
    graph = read_folder(folder(tmp_path))
    assert graph.x.tolist() == [[1, 0.5], [2, -1], [3, np.float32(1e-3)]]
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.y.tolist() == [0, 1, 0]
    assert graph.label_names == ["x", "y"]
    assert graph.node_ids == ["u", "v", "w"]
    assert graph.name == tmp_path.name
    assert "client" not in graph
    assert "split" not in graph


def test_client_and_split_columns(tmp_path):
    nodes = "split,id,a,label,client\ntest,1,0,p,10\ncalib,2,0,q,9\ntrain,3,1,p,9\nvalid,4,1,p,10\n"
    graph = read_folder(folder(tmp_path, nodes, "weight,target,source\n0.5,1,4\n"))
    assert graph.client.tolist() == [1, 0, 0, 1]
    assert graph.client.dtype == torch.int64
    assert graph.client_names == ["9", "10"]
    assert graph.split.tolist() == [3, 2, 0, 1]
    assert graph.edge_index.tolist() == [[0, 3], [3, 0]]


def test_roles_by_other_names(tmp_path):
    roles = ("Training", "VAL", "cal", "Test", "validation", "calibration", "testing")
    nodes = "".join(f"{i},{i % 2},{i},{role}\n" for i, role in enumerate(roles))
    graph = read_folder(folder(tmp_path, f"id,label,a,split\n{nodes}", "source,target\n0,1\n"))
    assert graph.split.tolist() == [0, 1, 2, 3, 1, 2, 3]


def test_the_index_of_pandas_is_one_of_the_other_columns_of_edges(tmp_path):
    graph = read_folder(folder(tmp_path, NODES, ",source,target\n0,u,v\n1,v,w\n"))
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]


def test_parquet_types(tmp_path):
    nodes = {"id": [7, 8, 9], "a": [True, False, True], "b": [1, 2, 3]}
    graph = read_folder(parquet(tmp_path, nodes, {"source": ["7"], "target": ["9"]}))
    assert graph.node_ids == ["7", "8", "9"]
    assert graph.label_names == ["9", "10"]
    assert graph.y.tolist() == [1, 0, 1]
    assert graph.x.tolist() == [[1, 1], [0, 2], [1, 3]]
    assert graph.edge_index.tolist() == [[0, 2], [2, 0]]


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        ("\ufeff" + NODES, "\ufeff" + EDGES),
        (NODES.replace("\n", "\r\n"), EDGES.replace("\n", "\r\n")),
        (NODES.rstrip("\n"), EDGES.rstrip("\n")),
        (NODES.replace("u,x", '"u","x"').replace("0.5", " 0.5"), EDGES.replace("u,", '"u",')),
        (f"{NODES}\n\n", f"{EDGES}\n,\n\n"),  # empty lines at the end
        (NODES, EDGES + "v,u\nu,v\nw,w\n"),  # repetitions and self-loops do not matter
    ],
)
def test_variants_of_the_same_graph(tmp_path, nodes, edges):
    (tmp_path / "plain").mkdir()
    (tmp_path / "variant").mkdir()
    plain = read_folder(folder(tmp_path / "plain"))
    variant = read_folder(folder(tmp_path / "variant", nodes, edges))
    assert torch.equal(plain.x, variant.x)
    assert torch.equal(plain.edge_index, variant.edge_index)
    assert torch.equal(plain.y, variant.y)
    assert plain.node_ids == variant.node_ids


@pytest.mark.parametrize("name", ["a [b]", "*", "wärd?", "{x}"])
def test_a_name_is_a_name_and_no_pattern(tmp_path, name):
    own, other = tmp_path / name, tmp_path / "a b"
    for path in (own, other):
        path.mkdir()
    assert read_folder(folder(own)).num_nodes == 3
    for file in own.iterdir():
        file.unlink()
    assert read_folder(parquet(own)).num_nodes == 3


def test_integer_ids_are_found_as_integers_or_as_text(tmp_path):
    ids = np.array([7, -3, 10**12])
    for kind in (pl.Int64, pl.String, pl.UInt64):
        edges = {"source": pl.Series([7, 7]).cast(kind), "target": pl.Series([10**12] * 2)}
        graph = read_folder(parquet(tmp_path, {"id": ids}, edges))
        assert graph.edge_index.tolist() == [[0, 2], [2, 0]]
    missing = {"source": [7, 8], "target": [7, 7]}
    sentence = "edges.parquet, row 2, column 'source': '8' is not the id of a node."
    assert refusal(parquet(tmp_path, {"id": ids}, missing)) == sentence
    empty = {"source": pl.Series([7, None], dtype=pl.Int64), "target": [7, 7]}
    assert "row 2, column 'source': is empty" in refusal(parquet(tmp_path, {"id": ids}, empty))


@pytest.mark.parametrize("edges", ["source,target\n", "source,target\n\n"])
def test_no_edges(tmp_path, edges):
    assert read_folder(folder(tmp_path, edges=edges)).num_edges == 0


def test_sparse_features_stay_sparse(tmp_path):
    rows = ["id,label," + ",".join(f"w{i}" for i in range(20))]
    rows += [f"n{i},{i % 2}," + ",".join("1" if j == i else "0" for j in range(20)) for i in (0, 5)]
    graph = read_folder(folder(tmp_path, "\n".join(rows), "source,target\nn0,n5\n"))
    assert graph.x.layout == torch.sparse_csr
    assert graph.x.to_dense().argmax(dim=1).tolist() == [0, 5]


names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6
).filter(
    # Blanks around a name do not count, NaN is none, NA may be either, and pandas' 1.0 is 1.
    lambda name: (
        name == name.strip()
        and name.lower() != "nan"
        and name not in UNCLEAR_LABELS
        and name[-2:] not in (".0", ",0")
    )
)


@st.composite
def graphs(draw):
    n = draw(st.integers(2, 12))
    node = st.integers(0, n - 1)
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    label = draw(st.lists(names, min_size=2, max_size=2, unique=True))
    return {
        "id": draw(st.lists(names, min_size=n, max_size=n, unique=True)),
        "label": label + draw(st.lists(st.sampled_from(label), min_size=n - 2, max_size=n - 2)),
        "client": draw(st.lists(names, min_size=n, max_size=n)),
        "x": draw(st.lists(st.tuples(floats, floats), min_size=n, max_size=n)),
        "edges": draw(st.lists(st.tuples(node, node), max_size=20)),
    }


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_round_trip(tmp_path_factory, graph, suffix):
    path = tmp_path_factory.mktemp("graph")
    ids, x = graph["id"], np.array(graph["x"], dtype=np.float32)
    nodes = pl.DataFrame(
        {k: graph[k] for k in ("id", "label", "client")} | {"f": x[:, 0], "g": x[:, 1]}
    )
    ends = {
        name: pl.Series([ids[edge[i]] for edge in graph["edges"]], dtype=pl.String)
        for i, name in enumerate(("source", "target"))
    }
    getattr(nodes, f"write_{suffix}")(path / f"nodes.{suffix}")
    getattr(pl.DataFrame(ends), f"write_{suffix}")(path / f"edges.{suffix}")
    read = read_folder(path)
    assert read.node_ids == ids
    assert np.array_equal(read.x.to_dense().numpy(), x)
    assert [read.label_names[i] for i in read.y] == graph["label"]
    assert [read.client_names[i] for i in read.client] == graph["client"]
    expected = {(a, b) for edge in graph["edges"] for a, b in (edge, edge[::-1]) if a != b}
    assert sorted(map(tuple, read.edge_index.T.tolist())) == sorted(expected)


BAD_CSV = {
    "nodes missing": ((None, EDGES), "has neither nodes.csv nor nodes.parquet, nor nodes.tsv"),
    "edges missing": ((NODES, None), "has neither edges.csv nor edges.parquet, nor edges.tsv"),
    "nodes empty": (("", EDGES), "nodes.csv is empty, but its first line must name the columns."),
    "edges empty": ((NODES, ""), "edges.csv is empty, but its first line must name the columns."),
    "no nodes": (("id,label,a\n", EDGES), "nodes.csv has no nodes."),
    "no id": (
        (NODES.replace("id", "Id_"), EDGES),
        "nodes.csv has no column 'id' (nor node, node_id); it has Id_, label",
    ),
    "no label": ((NODES.replace("label", "kind"), EDGES), "nodes.csv has no column 'label'"),
    "empty line": (
        (NODES, EDGES.replace("v,w", "\nv,w")),
        "edges.csv, line 3, column 'source': is empty.",
    ),
    "no source": ((NODES, EDGES.replace("source", "start")), "edges.csv has no column 'source'"),
    "no target": ((NODES, "source\nu\n"), "edges.csv has no column 'target'"),
    "no features": (("id,label\nu,x\nv,y\n", EDGES), "nodes.csv has no feature column"),
    "column twice": (
        (NODES.replace("a,b", "a,a"), EDGES),
        "nodes.csv, line 1, column 'a': stands twice in the header.",
    ),
    "column without name": (
        (NODES.replace("a,b", "a,"), EDGES),
        "nodes.csv, line 1: has no name for column 4.",
    ),
    "line for Excel": (
        ("sep=;\nid;label;a\nu;x;5\nv;y;6\n", EDGES),
        "nodes.csv, line 1: is a line for Excel alone; take it out, the columns' names come first.",
    ),
    "index of pandas": (
        (",id,label,a\n0,u,x,5\n1,v,y,6\n", EDGES),
        "nodes.csv, line 1: has no name for column 1; if it is the index of pandas, write the",
    ),
    "index of pandas, read and written again": (
        (NODES.replace("a,b", "a,Unnamed: 0"), EDGES),
        "nodes.csv, line 1: calls column 4 'Unnamed: 0'; if it is the index of pandas, write the",
    ),
    "id twice": (
        (NODES.replace("w,x", "u,x"), EDGES),
        "nodes.csv, line 4, column 'id': the id 'u' has been used before.",
    ),
    "id empty": ((NODES.replace("v,y", ",y"), EDGES), "nodes.csv, line 3, column 'id': is empty."),
    "id quoted empty": ((NODES.replace("v,y", '"",y'), EDGES), "nodes.csv, line 3, column 'id'"),
    "all labels empty": (
        (NODES.replace(",x", ",").replace(",y", ","), EDGES),
        "nodes.csv, column 'label': is empty for every node.",
    ),
    "one label besides empty ones": (
        (NODES.replace(",y", ","), EDGES),
        "column 'label': has the same value, 'x', for every node that has one.",
    ),
    "one label": (
        (NODES.replace("v,y", "v,x"), EDGES),
        "nodes.csv, column 'label': has the same value, 'x', for every node.",
    ),
    "label of R where there is none": (
        (NODES.replace("v,y", "v,NA"), EDGES),
        "nodes.csv, line 3, column 'label': 'NA' may be a label or none; leave it empty where",
    ),
    "label of numbers": (
        ("id,label,a\n" + "".join(f"{i},{i / 7},{i}\n" for i in range(101)), "source,target\n"),
        "nodes.csv, column 'label': has 101 different values for 101 nodes, too many for classes.",
    ),
    "numbers among many times the same word": (
        (
            "id,label,a\n" + "".join(f"{i},{i % 2},{i if i < 20 else '?'}\n" for i in range(60)),
            "source,target\n",
        ),
        "nodes.csv, line 22, column 'a': '?' is not a number.",
    ),
    "word as feature": (
        (NODES.replace("-1", "high"), EDGES),
        "nodes.csv, line 3, column 'b': 'high' is not a number.",
    ),
    "true as feature": (
        (NODES.replace("-1", "true"), EDGES),
        "column 'b': 'true' is not a number.",
    ),
    "feature empty": ((NODES.replace("-1", ""), EDGES), "line 3, column 'b': is empty; fill it in"),
    "feature nan": (
        (NODES.replace("-1", "nan"), EDGES),
        "nodes.csv, line 3, column 'b': is not a number (NaN); fill it in, or have missing values "
        "imputed (--missing impute).",
    ),
    "feature inf": ((NODES.replace("-1", "inf"), EDGES), "line 3, column 'b': is not a finite"),
    "feature too large": ((NODES.replace("-1", "1e40"), EDGES), "line 3, column 'b': is not a fin"),
    "row too short": (
        (NODES.replace("2,-1", "2"), EDGES),
        "nodes.csv, line 3: has 3 fields, but the header has 4.",
    ),
    "row too long": (
        (NODES.replace("-1", "-1,8"), EDGES),
        "nodes.csv, line 3: has 5 fields, but the header has 4.",
    ),
    "quote that is not closed": (
        (NODES.replace("v,y", '"v,y'), EDGES),
        "nodes.csv, line 3: a quote in it is not closed, or stands within a word.",
    ),
    "quote at the very end": (
        (NODES.replace("1e-3\n", '"'), EDGES),
        "nodes.csv, line 4: a quote in it is not closed, or stands within a word.",
    ),
    "blank line": ((NODES.replace("\nv", "\n\nv"), EDGES), "nodes.csv, line 3, column 'id': is em"),
    "line after a quoted break": (
        (NODES.replace("u,x", '"u\n\n",x').replace("-1", "no"), EDGES),
        "nodes.csv, line 5, column 'b': 'no' is not a number.",
    ),
    "not UTF-8": (
        (NODES.encode().replace(b"v,y", b"v,\xff"), EDGES),
        "nodes.csv, line 3: is not text in UTF-8",
    ),
    "header not UTF-8": (
        (b"id,\xff\n", EDGES),
        "nodes.csv, line 1: is not text in UTF-8; save the file with that encoding.",
    ),
    "Latin-1": (
        (NODES.replace("w,x", "wä,x").encode("latin-1"), EDGES),
        "nodes.csv, line 4: is not text in UTF-8; save the file with that encoding.",
    ),
    "tabs": (
        (NODES, EDGES.replace(",", "\t")),
        "edges.csv has tabs between its columns, which must be commas or semicolons.",
    ),
    "CR line ends": (
        (NODES.replace("\n", "\r"), EDGES),
        "nodes.csv ends its lines with CR alone; save it with LF or CRLF line ends.",
    ),
    "CR line ends in a table of names": (
        (NODES, EDGES.replace("\n", "\r")),
        "edges.csv ends its lines with CR alone;",
    ),
    "CR line ends after the header": (
        (NODES.replace("\n", "\r").replace("\r", "\n", 1), EDGES),
        "nodes.csv is not a readable CSV file",
    ),
    "edge to nobody": (
        (NODES, EDGES + "w,nobody\n"),
        "edges.csv, line 4, column 'target': 'nobody' is not the id of a node.",
    ),
    "edge from nobody": ((NODES, EDGES + " t,v\n"), "line 4, column 'source': 't' is not the id"),
    "edge half": ((NODES, EDGES + "u\n"), "edges.csv, line 4, column 'target': is empty."),
    "edge too long": ((NODES, EDGES + "u,v,w\n"), "edges.csv, line 4: has 3 fields, but the hea"),
    "split word": (
        ("id,label,a,split\nu,x,1,train\nv,y,1,dev\n", EDGES),
        "nodes.csv, line 3, column 'split': 'dev' is not one of train, valid, calib, test.",
    ),
    "split empty": (
        ("id,label,a,split\nu,x,1,\nv,y,1,test\n", EDGES),
        "nodes.csv, line 2, column 'split': is empty.",
    ),
    "split without calib": (
        ("id,label,a,split\nu,x,1,train\nv,y,1,test\nw,x,1,valid\n", EDGES),
        "nodes.csv, column 'split': no node has 'calib'.",
    ),
    "client empty": (
        ("id,label,a,client\nu,x,1,c\nv,y,1,\nw,x,1,c\n", EDGES),
        "nodes.csv, line 3, column 'client': is empty.",
    ),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_bad_csv(tmp_path, case, capfd):
    (nodes, edges), fragment = BAD_CSV[case]
    assert fragment in refusal(folder(tmp_path, nodes, edges))
    assert capfd.readouterr().err == ""  # nor does polars say anything of its own


BAD_PARQUET = {
    "id twice": (({"id": ["u", "v", "u"]}, None), "nodes.parquet, row 3, column 'id': the id 'u'"),
    "id null": (({"id": ["u", None, "w"]}, None), "nodes.parquet, row 2, column 'id': is empty."),
    "no label": (
        ({"label": None}, None),
        "nodes.parquet has no column 'label' (nor class, y, target_label); it has id, a.",
    ),
    "index of pandas": (
        ({"__index_level_0__": [2, 0, 1]}, None),
        "nodes.parquet calls column 4 '__index_level_0__'; if it is the index of pandas, write",
    ),
    "label of floats": (({"label": [0.5, 1.0, 2.0]}, None), "column 'label': has the type Float64"),
    "feature of text": (
        ({"a": ["k", "l", "m"]}, None),
        "nodes.parquet, column 'a': has 3 different words for 3 nodes, so that it looks like an id",
    ),
    "feature of numbers as text": (
        ({"a": ["1", "2", "3.5"]}, None),
        "nodes.parquet, column 'a': holds numbers as text; store them as numbers.",
    ),
    "feature of dates": (
        ({"a": [date(2026, 1, day) for day in (1, 2, 3)]}, None),
        "nodes.parquet, column 'a': has the type Date, not numbers.",
    ),
    "feature null": (({"a": [1, 2, None]}, None), "row 3, column 'a': is empty; fill it in"),
    "feature nan": (
        ({"a": [1.0, float("nan"), 2.0]}, None),
        "row 2, column 'a': is not a number (NaN)",
    ),
    "feature too large": (({"a": [1.0, 2.0, -1e300]}, None), "row 3, column 'a': is not a finite"),
    "edge to nobody": (
        (None, {"source": ["u", "9"], "target": ["v", "u"]}),
        "edges.parquet, row 2, column 'source': '9' is not the id of a node.",
    ),
    "edge null": (
        (None, {"target": ["v", None]}),
        "edges.parquet, row 2, column 'target': is empty.",
    ),
}


@pytest.mark.parametrize("case", BAD_PARQUET)
def test_bad_parquet(tmp_path, case):
    (nodes, edges), fragment = BAD_PARQUET[case]
    assert fragment in refusal(parquet(tmp_path, nodes, edges))


def test_unreadable_parquet(tmp_path):
    (tmp_path / "nodes.parquet").write_text(NODES)
    assert refusal(tmp_path) == "nodes.parquet is not a readable Parquet file."


def test_csv_and_parquet_at_once(tmp_path):
    refused = refusal(folder(parquet(tmp_path)))
    assert refused == "has both nodes.csv and nodes.parquet; keep one of them."


def test_blanks_around_names_do_not_count_and_blanks_alone_are_no_label(tmp_path):
    nodes = (
        "id,label,client,split,ward,a\nu,b,p ,train,k,1\n v, b ,p, calib,k ,2\n"
        "w, ,q,test,k,3\nx,c,q,test ,l,4\n"
    )
    folder(tmp_path, nodes, "source,target\nu , v\nv,x\n")
    graph = read_folder(tmp_path, group="ward")
    assert graph.label_names == ["b", "c"]
    assert graph.y.tolist() == [0, 0, -1, 1]
    assert graph.client_names == ["p", "q"]
    assert graph.split.tolist() == [0, 2, -1, 3]
    assert graph.group_names == ["k", "l"]
    assert graph.node_ids == ["u", "v", "w", "x"]
    assert graph.edge_index.tolist() == [[0, 1, 1, 3], [1, 0, 3, 1]]


def test_integers_that_became_floats_are_integers(tmp_path):
    """Pandas writes a column of integers as floats where one is missing."""
    nodes = "id,label,client,a\n1.0,10.0,3.0,5\n2.0,,4.0,6\n3.0,9.0,4.0,7\n"
    graph = read_folder(folder(tmp_path, nodes, "source,target\n1,2.0\n2,3.0\n"))
    assert graph.node_ids == ["1", "2", "3"]
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert (graph.y.tolist(), graph.label_names) == ([1, -1, 0], ["9", "10"])
    assert graph.client_names == ["3", "4"]
    other = tmp_path / "parquet"
    other.mkdir()
    table = {"id": [1.0, 2.0, 3.0], "label": [10.0, float("nan"), 9.0], "client": [3.0, 4.0, 4.0]}
    same = read_folder(parquet(other, table, {"source": [1, 2], "target": [2.0, 3.0]}))
    assert same.node_ids == graph.node_ids
    assert same.y.tolist() == graph.y.tolist()
    assert same.client_names == graph.client_names
    assert same.edge_index.tolist() == graph.edge_index.tolist()


def test_a_column_with_other_names_keeps_its_zeros(tmp_path):
    graph = read_folder(folder(tmp_path, "id,label,a\nu,1.0,5\nv,1.5,6\nw,1.0,7\n"))
    assert graph.label_names == ["1.0", "1.5"]


def test_a_float_beyond_what_tells_integers_apart_is_no_id(tmp_path):
    big = float(2**53)
    said = refusal(parquet(tmp_path, {"id": [big, big + 2, big + 4]}))
    assert "column 'id': has the type Float64, not text or integers" in said


def test_a_client_that_is_nan_is_none(tmp_path):
    nodes = "id,label,client,a\nu,x,n,5\nv,y,NaN,6\nw,x,n,7\n"
    assert "line 3, column 'client': is empty" in refusal(folder(tmp_path, nodes))


def test_a_word_that_is_nan_is_missing(tmp_path):
    nodes = "id,label,w,b\nu,x,p,true\nv,y,NaN,nan\nw,x,p,false\n"
    said = refusal(folder(tmp_path, nodes))
    assert "line 3, column 'w': is empty; fill it in" in said
    graph = read_folder(tmp_path, missing="impute")
    assert graph.feature_names == ["w=p", "b"]
    assert graph.x[:, 0].tolist() == [1, 0, 1]
    assert graph.missing.tolist() == [[1], [1]]


def test_a_hundred_labels_or_two_nodes_each_are_classes(tmp_path):
    for nodes, labels in ((100, 100), (300, 150)):
        rows = "".join(f"{i},{i % labels},{i}\n" for i in range(nodes))
        graph = read_folder(folder(tmp_path, f"id,label,a\n{rows}", "source,target\n"))
        assert len(graph.label_names) == labels


def test_a_label_that_is_nan_is_none(tmp_path):
    graph = read_folder(folder(tmp_path, NODES.replace("v,y", "v,NaN").replace("u,x", "u,z")))
    assert graph.y.tolist() == [1, -1, 0]
    assert graph.label_names == ["x", "z"]


def test_true_and_false_are_numbers_in_every_kind_of_file(tmp_path):
    words = ["true", "False", "true"]
    graph = read_folder(parquet(tmp_path, {"smokes": words, "ill": [True, False, False]}))
    assert graph.feature_names == ["a", "smokes", "ill"]
    assert graph.x[:, 1].tolist() == [1, 0, 1]


def test_ids_that_differ_by_blanks_are_the_same(tmp_path):
    nodes = NODES.replace("v,y", "u ,y")
    assert refusal(folder(tmp_path, nodes)).startswith(
        "nodes.csv, line 3, column 'id': the id 'u' has been used before"
    )
    assert "line 3, column 'id': is empty" in refusal(folder(tmp_path, nodes.replace("u ,", " ,")))


def test_edges_without_a_row_may_be_without_a_type(tmp_path):
    graph = read_folder(parquet(tmp_path, edges={"source": [], "target": []}))
    assert graph.edge_index.shape == (2, 0)
    nothing = pl.Series([None], dtype=pl.Null)
    parquet(tmp_path, edges={"source": nothing, "target": nothing})
    assert "edges.parquet, column 'source': has the type Null" in refusal(tmp_path)

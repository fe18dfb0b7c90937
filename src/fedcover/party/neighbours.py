r"""Neighbours at other parties, where both ends know the edge: sums of what they are like.

1. Two parties find the links that both of them have (:mod:`fedcover.matching`).
2. A node with ``least`` far ends or more gets their sum :math:`\sum_u h_u` from all parties
   together; similar nodes with fewer share one (:mod:`fedcover.party.neighbour_rows`). A party's
   term is masked twice: with masks that cancel in the sum over parties, and with one that only the
   nodes' owner can take off. The coordinator adds what looks like noise; the owner sees the sum,
   and no party's term.
3. The mean becomes one more neighbour. For a node that has n far ends itself, the edge weighs
   :math:`\sqrt{n}`, or a quarter of it where the mean is shared.

Of two parties, a sum is one party's term. The coordinator also sees how many links any two parties
list and have in common, from the lengths of letters. A party that holds far ends learns which of
their links end at the same node of the owner or at nodes that share a sum, and whether there is
one. That rows with too
few far ends go to nobody is the coordinator's work: it and an owner who conspire get them. A
coordinator that puts keys of its own in place of the parties' is an owner of any rows; who does not
trust it must compare keys (:mod:`fedcover.sealing`).

Numbers are in fixed point, so that a sum is exact. No label is used here, and roles of nodes make
no difference (docs/neighbours.md).
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedcover import fixed_point, matching, sealing
from fedcover.conformal.protocol import Message
from fedcover.errors import DataError, require
from fedcover.party import neighbour_rows, neighbour_values
from fedcover.party.augment import augment
from fedcover.party.neighbour_rows import on_own_scale
from fedcover.plans import KEYS, MATCHING, SUMS
from fedcover.privacy import gaussian_multiplier
from fedcover.training.plan import Index, PartyGraph

if TYPE_CHECKING:
    from fedcover.party.party import Party

SHARED = 0.25  # how much a mean that several nodes share counts beside a node's own
TAG = 16  # bytes that stand for a link


# What two parties find out.


def key(party: "Party", _part: str, _query: Message) -> Message:
    """The party's public key."""
    require("neighbours", "+neighbours")
    return {"key": _keys(party).public}


def request(party: "Party", _part: str, _query: Message) -> Message:
    """For every party with a larger number: which links do we share?"""
    asked = (other for other in _others(party) if other > party.number)

    def message(other: int) -> bytes:
        return matching.request(_items(party, other), _secret(party, f"matching {other}"))

    return {str(k): _sealed(party, k, "request", message(k)) for k in asked}


def reply(party: "Party", _part: str, query: Message) -> Message:
    """To every party that has asked: those with a smaller number."""
    found = {}
    for sender, sealed in _from(query, range(party.number)):
        asked = _opened(party, sender, "request", sealed)
        answer = matching.reply(_items(party, sender), asked, _secret(party, f"matching {sender}"))
        found[str(sender)] = _sealed(party, sender, "reply", answer)
    return found


def match(party: "Party", _part: str, query: Message) -> Message:
    """Which links both have, told to the party that has replied: by a tag that shows them to none
    but who has them, since an answer can be made up."""
    found, common = {}, {}
    for sender, sealed in _from(query, [k for k in _others(party) if k > party.number]):
        answer, items = _opened(party, sender, "reply", sealed), _items(party, sender)
        places = matching.common(items, _secret(party, f"matching {sender}"), answer)
        common[str(sender)] = np.array(places, dtype=np.int64)
        tags = _tags(party, sender, [items[place] for place in places])
        found[str(sender)] = _sealed(party, sender, "links", b"".join(sorted(tags)))
    party.tell(f"{MATCHING} asked", common)
    return found


def places(party: "Party", _part: str, query: Message) -> Message:
    """How many rows this party wants, and for every other party into which row each link goes."""
    common = {}
    if not _private(party):
        party.tell(KEYS, {"keys": query["parties"]})
    for sender, sealed in _from(query, range(party.number) if _private(party) else ()):
        said = _opened(party, sender, "links", sealed)
        named = {said[start : start + TAG] for start in range(0, len(said), TAG)}
        own = _tags(party, sender, _items(party, sender))
        if TAG * len(named) != len(said) or not named <= set(own):
            raise DataError("another party names a link that is not among this one's, or twice.")
        common[str(sender)] = np.flatnonzero([tag in named for tag in own])
    party.tell(f"{MATCHING} replied", common)
    (row, adds), links = _rows(party), party.data.links
    assert links is not None
    place = np.where(adds, row[links.node], -1).astype(np.int32)
    bits = 8 * np.dtype(neighbour_values.word(party)).itemsize
    found = {"rows": np.array([row.max(initial=-1) + 1]), "bits": np.array([bits])}
    for other, shared in sorted(_common(party).items()):
        content = place[shared].tobytes()
        found[str(other)] = _sealed(party, other, "places", content)
    return found


def in_common(party: "Party") -> dict[int, tuple[int, int]]:
    """By other party: how many links both have, and how many this one lists."""
    listed = _listed(party)
    return {other: (len(own), len(listed[other])) for other, own in _common(party).items()}


def rows_of(party: "Party") -> Index:
    """The row of every node, -1 if it has none: which sum over far ends it gets."""
    return _rows(party)[0]


def _rows(party: "Party") -> tuple[Index, NDArray[np.bool_]]:
    """The row of every node, and which links add their far end to it: of a row's links to one node
    of another party, the first.

    A row has ``least`` different far ends; nodes with the same key are one, such as a person whom
    several parties know.
    """

    def make() -> tuple[Index, NDArray[np.bool_]]:
        data, settings = party.data, party.config.neighbour
        common = _all_common(party)
        assert data.links is not None
        node, far = data.links.node[common], data.links.far[common]
        # Numbered as they first occur, which is the same wherever the links come from.
        _, first, far = np.unique(far, return_index=True, return_inverse=True)
        far = np.argsort(np.argsort(first))[far]
        ends = sp.csr_array((np.ones(len(node)), (node, far)), shape=(len(data.y), len(first)))
        x, shared = on_own_scale(data, bool(party.config.standardise)), settings.shared
        row = neighbour_rows.rows_of(x, data.edge_index, ends, settings.least, shared=shared)
        if settings.least > 1:
            rng = np.random.default_rng([*data.key, 0x0DE7])
            kept = neighbour_rows.undetermined(neighbour_rows.sums_of(row, ends), rng)
            number = np.full(int(row.max(initial=-1)) + 2, -1)  # the last is for nodes without
            number[kept] = np.arange(len(kept))
            row = number[row]
        adds = np.zeros(len(data.links.node), dtype=bool)
        added = np.stack([row[node], far, data.links.party[common]])
        adds[common[np.unique(added, axis=1, return_index=True)[1]]] = True
        most, limit = np.bincount(row[data.links.node[adds]] + 1)[1:], neighbour_values.MOST
        if most.max(initial=0) >= limit:
            raise DataError(f"a sum has {most.max():,} far ends; sums take fewer than {limit:,}.")
        return row, adds

    return party.once("rows", make)


# The sums.


def far_ends(parties: "Sequence[Party]", _round: int, queries: Sequence[Message]) -> Message:
    """What these parties' nodes add to the rows of the one that asks: sums, and their numbers."""
    owner, rows = int(queries[0]["owner"]), int(queries[0]["rows"])
    total: dict[str, Any] = {}
    for party, query in zip(parties, queries, strict=True):
        for name, array in _terms(party, owner, rows, query).items():
            total[name] = total[name] + array if name in total else array
    return {name: one.toarray() if sp.issparse(one) else one for name, one in total.items()}


def _terms(party: "Party", owner: int, rows: int, query: Message) -> dict[str, Any]:
    """A party's own: integers, sparse where they are not masked."""
    said = _opened(party, owner, "places", query[str(party.number)])
    common = _common(party)[owner]
    fits = len(said) == 4 * len(common)
    place = np.frombuffer(said if fits else b"", np.int32)
    if not fits or not ((place >= -1) & (place < rows)).all():
        raise DataError("the places of links do not fit those that both parties have.")
    assert party.data.links is not None
    node, capped = party.data.links.node[common], _within_cap(party)
    least, asked = party.config.neighbour.least, np.bincount(place[place >= 0], minlength=1)
    if len(_others(party)) == 1 and ((asked > 0) & (asked < least)).any():
        raise DataError(f"a row that the other party asks for has fewer than {least} far ends.")
    used = (place >= 0) & capped[common]
    shape = rows, len(party.data.y)
    pairs = sp.csr_array((np.ones(used.sum(), np.int64), (place[used], node[used])), shape=shape)
    if (pairs.data > 1).any():  # three times the same far end is that far end
        raise DataError("a row that another party asks for has the same far end twice.")
    kind, values = neighbour_values.word(party), neighbour_values.values_of(party)
    sums, counts = (pairs @ values).astype(kind), pairs.sum(axis=1).astype(np.uint32)
    if party.config.neighbour.epsilon is not None:
        sums = sums + _noise(party, owner, sums.shape)
    if _private(party):
        sums = sums.toarray() if sp.issparse(sums) else np.asarray(sums)
        _once(party, owner, query, sums, counts)
        sums += _mask(party, owner, f"sums for {owner}", sums)
        for other in _others(party):
            if other != owner:  # what one of the two adds, the other takes away
                change = np.add if party.number < other else np.subtract
                for name, array in (("sums", sums), ("numbers", counts)):
                    change(array, _mask(party, other, f"{name} for {owner}", array), out=array)
    return {"sums": sums, "numbers": counts, "parties": np.ones(1, dtype=np.int64)}


def _once(party: "Party", owner: int, query: Message, *content: NDArray[Any]) -> None:
    """Masks hide one message: a second question about other rows gets no answer, nor one about the
    same rows after the scale of features has changed."""
    digest = hashlib.sha256()
    for array in content:
        digest.update(np.ascontiguousarray(array).data)
    asked = {name: query[name] for name in ("rows", str(party.number))}
    asked["content"] = np.frombuffer(digest.digest(), np.uint8)
    before = party.told.get(f"{SUMS} for {owner}")
    if before is None:
        party.tell(f"{SUMS} for {owner}", asked)
    elif any(not np.array_equal(before[name], asked[name]) for name in asked):
        raise DataError("another party's rows were asked for already, and were others.")


def receive(party: "Party", _part: str, query: Message) -> Message:
    """Take the masks off, and keep the means."""
    sums, row = query["sums"].copy(), rows_of(party)
    if _private(party):
        for other in _others(party):
            sums -= _mask(party, other, f"sums for {party.number}", sums)
    numbers = query["numbers"].astype(np.int64)
    if len(sums) != row.max(initial=-1) + 1:
        raise DataError("the sums that came are not of the rows that were asked for.")
    enough = np.append(numbers >= party.config.neighbour.least, False)  # the last: no row
    node = np.flatnonzero(enough[row])
    scale = numbers[:, None] * (1.0 if sums.dtype == np.uint16 else 2.0**neighbour_values.BITS)
    mean = (sums[row[node]] / scale[row[node]]).astype(np.float32)
    assert party.data.links is not None
    links = party.data.links.node[_all_common(party)]
    number = np.minimum(np.bincount(links, minlength=len(row))[node], numbers[row[node]])
    alone = np.bincount(row[node], minlength=len(sums))[row[node]] == 1
    weight = np.sqrt(number) * np.where(alone, 1.0, SHARED)
    party.tell(SUMS, {"node": node, "number": number, "weight": weight, "mean": mean})
    return {}


def joined(party: "Party", graph: PartyGraph) -> PartyGraph:
    """The graph, and for every node that got a sum one more neighbour: the mean of its far ends."""
    told = party.knows(SUMS)
    mean, row = told["mean"], np.arange(len(told["node"]))
    if party.config.neighbour.values != "features":
        mean = np.pad(mean, ((0, 0), (graph.x.shape[1], 0)))
    features = sp.csr_array(mean) if sp.issparse(graph.x) else mean
    return augment(graph, features, np.stack([row, told["node"]]), told["weight"])


# Noise, and how often a node's values leave.


def _noise(party: "Party", owner: int, shape: tuple[int, int]) -> Index:
    """This party's part of the noise: with all others' but one it is enough."""
    settings, others = party.config.neighbour, len(_others(party))
    assert settings.epsilon is not None
    reach = settings.norm * np.sqrt(settings.cap or 1)
    whole = reach * gaussian_multiplier(settings.epsilon, settings.delta)
    drawn = sealing.gaussian(_secret(party, f"noise for {owner}"), shape[0] * shape[1])
    own = whole / np.sqrt(max(others - 1, 1))
    return fixed_point.encode(own * drawn.reshape(shape), neighbour_values.BITS)


def _within_cap(party: "Party") -> NDArray[np.bool_]:
    """Which links a node's values may go along: at most ``cap`` of each node's."""

    def make() -> NDArray[np.bool_]:
        links, cap = party.data.links, party.config.neighbour.cap
        assert links is not None
        if cap is None:
            return np.ones(len(links.node), dtype=bool)
        rng = np.random.default_rng([*party.data.key, 0xCA9])
        common = rng.permutation(_all_common(party))
        order = common[np.argsort(links.node[common], kind="stable")]
        node, within = links.node[order], np.zeros(len(links.node), dtype=bool)
        start = np.searchsorted(node, node)
        within[order[np.arange(len(order)) - start < cap]] = True
        return within

    return party.once("within cap", make)


# Whom it talks to, and what others cannot read.


def _private(party: "Party") -> bool:
    return party.config.matching != "open"


def _others(party: "Party") -> list[int]:
    """All parties but this one."""
    count = len(party.knows(KEYS)["keys"])
    return [number for number in range(count) if number != party.number]


def _listed(party: "Party") -> dict[int, Index]:
    """By other party, the places among ``links`` of those to its nodes, in the order of keys."""

    def make() -> dict[int, Index]:
        links = party.data.links
        assert links is not None
        order = np.argsort(links.key, kind="stable")
        whose = links.party[order]
        return {other: order[whose == other] for other in _others(party)}

    return party.once("listed links", make)


def _common(party: "Party") -> dict[int, Index]:
    """The same of the links that both have; without private matching these are all."""

    def make() -> dict[int, Index]:
        listed = _listed(party)
        if not _private(party):
            return listed
        asked, replied = (party.knows(f"{MATCHING} {role}") for role in ("asked", "replied"))
        found = {**asked, **replied}
        return {other: own[found[str(other)]] for other, own in listed.items()}

    return party.once("common links", make)


def _all_common(party: "Party") -> Index:
    """The positions of all links that both ends know, by the other party's number."""
    return np.concatenate([np.empty(0, np.int64), *_common(party).values()])


def _items(party: "Party", other: int) -> list[str]:
    assert party.data.links is not None
    return [str(key) for key in party.data.links.key[_listed(party)[other]].tolist()]


def _tags(party: "Party", other: int, items: Sequence[str]) -> list[bytes]:
    """What stands for a link between two parties; whoever does not know the link sees no text."""
    between = sorted((party.number, other))
    key = _shared(party, other, f"tags {between}")
    return [hmac.digest(key, item.encode(), "sha256")[:TAG] for item in items]


def _secret(party: "Party", purpose: str) -> bytes:
    """32 bytes of the party's own for one purpose; a simulation's follow from seed and number."""
    held = party.data.secret.to_bytes(32, "big")
    about = f"{party.data.seed} {party.number} {purpose}"
    return hashlib.sha256(held + about.encode()).digest()


def _keys(party: "Party") -> sealing.Keys:
    made: sealing.Keys = party.once(
        "keys", lambda: sealing.Keys.derive(_secret(party, "key"), "neighbours")
    )
    return made


def _shared(party: "Party", other: int, purpose: str) -> bytes:
    """What this party and the other one know, and nobody else."""
    return _keys(party).shared(party.knows(KEYS)["keys"][other], purpose)


def _sealed(party: "Party", other: int, about: str, content: bytes) -> NDArray[np.uint8]:
    """A message that only the other party can read."""
    if not _private(party):
        return np.frombuffer(content, dtype=np.uint8)
    told = f"{about} {party.number} {other}"
    return sealing.seal(_shared(party, other, told), content, told)


def _opened(party: "Party", other: int, about: str, sealed: NDArray[np.uint8]) -> bytes:
    if not _private(party):
        return sealed.tobytes()
    told = f"{about} {other} {party.number}"
    return sealing.unseal(_shared(party, other, told), sealed, told)


def _mask(party: "Party", other: int, purpose: str, like: NDArray[Any]) -> NDArray[Any]:
    """Words that two parties can compute."""
    unsigned = np.dtype(f"u{like.dtype.itemsize}")
    drawn = sealing.mask(_shared(party, other, purpose), like.size, unsigned)
    return drawn.view(like.dtype).reshape(like.shape)


def _from(query: Message, senders: Iterable[int]) -> Iterator[tuple[int, NDArray[Any]]]:
    """What other parties sent, by their numbers: all of them, and nobody else."""
    sent = {name for name in query if name.isdecimal()}
    expected = [str(sender) for sender in senders]
    if sent != set(expected):
        raise DataError("the messages that came are not those of all other parties.")
    return ((int(name), query[name]) for name in expected)

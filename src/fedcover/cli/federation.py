"""``fedcover federation``: keys, and one to try; ``fedcover ledger``: what was sent."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from fedcover.cli import options
from fedcover.cli.options import argument, examples, number, option, words
from fedcover.errors import DataError, UsageError, require

app = options.group(
    "A federation over a network, on Flower: keys, gate, app, try.",
    "fedcover federation try cora --clients 3",
)
ledger_app = options.group(
    "What left a site, and what reached it: show, verify.", "fedcover ledger show hospital-a"
)


@app.command("keys", epilog=examples("fedcover federation keys keys --hosts 10.0.0.1 --sites a,b"))
def keys(
    folder: Annotated[Path, argument("DIR", "Where to put them.")],
    hosts: Annotated[str, option("A,B,…", "Names or addresses of the coordinator.")],
    sites: Annotated[str | None, option("A,B,…", "Sites to make key pairs for.")] = None,
) -> None:
    """Make an authority, the coordinator's certificate, and key pairs for sites."""
    require("flower", "fedcover federation keys")
    from fedcover.carriers.network.flower.keys import CA, make_certificates, make_site_key

    if (folder / CA).exists():
        raise UsageError(f"{folder} already holds {CA}; choose another folder.")
    make_certificates(folder, words("hosts", hosts) or ())
    print(f"{folder}: ca.crt for all sites; server.pem and server.key for the coordinator alone")
    for name in words("sites", sites) or ():
        public = make_site_key(folder / name)
        print(f"{folder / name} for the site {name} alone; {public} to register it")


@app.command("gate", epilog=examples("fedcover federation gate /etc/fedcover"))
def gate(
    folder: Annotated[Path, argument("DIR", "Where the keys are.")],
    port: Annotated[int, number("P", "The one port that parties connect to.")] = 8000,
    superlink: Annotated[str, option("HOST:PORT", "The SuperLink's address.")] = "127.0.0.1:8001",
) -> None:
    """Print an nginx server block that lets sites through to the SuperLink, and nobody else."""
    require("flower", "fedcover federation gate")
    from fedcover.carriers.network.flower.keys import nginx

    print(nginx(folder, port, superlink), end="")


@app.command("app", epilog=examples("fedcover federation app"))
def app_folder() -> None:
    """Print the folder of the Flower app, for ``flwr run``."""
    require("flower", "fedcover federation app")
    from fedcover.carriers.network.flower import APP

    print(APP)


@app.command(
    "try",
    epilog=examples(
        "fedcover federation try",
        "fedcover federation try cora --clients 3 --methods fed --rounds 20",
        "fedcover federation try my-parties --methods fed+neighbours",
    ),
    cls=options.with_settings(
        network=True,
        methods="As --methods of fedcover run (default: gen).",
        seeds="Repetitions (default: 1).",
        least="How many sites must answer a round (default: all but one).",
        join="Seconds that the job waits for its sites (default: 120).",
    ),
)
def try_out(
    graph: Annotated[
        str, argument("GRAPH", "A name, or a path; a folder of parties' folders is not cut.")
    ] = "cora",
    clients: Annotated[
        int | None, number("K", "Number of sites (default: 3, or as many as GRAPH has parties).")
    ] = None,
    out: Annotated[Path, option("DIR", "Run folder.")] = Path("runs/federation"),
    data: options.Data = None,
    quiet: options.Quiet = False,
) -> None:
    """Start a whole federation on this machine, run a job over it, and stop everything.

    A SuperLink and K SuperNodes are separate processes with TLS and authentication; every site
    keeps its sets.
    """
    from fedcover.display import answers, terminal

    require("flower", "fedcover federation try")
    from fedcover.carriers.network.flower.local import trial

    say = None if quiet else partial(print, file=sys.stderr, flush=True)
    finished = trial(graph, clients, options.given(), out, data=data, say=say)
    if not quiet:
        answers.federation(terminal.console(), finished)
        print(f"\n{finished}: report.html, results.csv, groups.csv, ledger.jsonl, run.json")


@ledger_app.command("show", epilog=examples("fedcover ledger show hospital-a --direction up"))
def show(
    path: Annotated[Path, argument("PATH", "A ledger.jsonl, or a folder that holds one.")],
    direction: Annotated[
        str | None, option("up|down", "What left the site, or reached it.")
    ] = None,
    job: Annotated[str | None, option("JOB", "Only this job.")] = None,
) -> None:
    """Sum up a ledger: every kind of array that travelled, how often, and how many bytes."""
    from fedcover.carriers.network import journal
    from fedcover.display import answers, terminal

    if direction not in (None, "up", "down"):
        raise UsageError(f"direction is {direction!r}; it must be up or down.")
    rows = [
        row
        for row in journal.read(_ledger(path))
        if direction in (None, row["direction"]) and job in (None, row["job"])
    ]
    answers.ledger(terminal.console(), journal.totals(rows))


@ledger_app.command(
    "verify",
    epilog=examples(
        "fedcover ledger verify hospital-a",
        "fedcover ledger verify hospital-a --beside runs/federation",
    ),
)
def verify(
    path: Annotated[Path, argument("PATH", "A ledger.jsonl, or a folder that holds one.")],
    beside: Annotated[
        list[Path] | None, option("PATH", "The other side's ledger, to check the end, too.")
    ] = None,
) -> None:
    """Check that no line of a ledger was changed or taken out."""
    from fedcover.carriers.network import journal

    file, others = _ledger(path), [_ledger(other) for other in beside or ()]
    count = journal.verify(file, others)
    said = "and its end matches" if others else "but --beside alone shows whether its end is there"
    print(f"{file}: {count:,} lines, none changed or taken out, {said}")


def _ledger(path: Path) -> Path:
    from fedcover.carriers.network import journal

    file = path / journal.FILE if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"{file} does not exist; a site writes it when it takes part in a job.")
    return file

"""The command line: a thin layer over the public Python calls, one file a command."""

import io
import os
import sys
from typing import Annotated

import typer
from click import ClickException

from fedcover import __version__
from fedcover.cli import data, federation, inspect, paper, predict, run, site, tune
from fedcover.cli.options import examples, help_if_alone
from fedcover.errors import FedcoverError

INTERRUPTED = 130  # 128 + SIGINT, as shells count

app = typer.Typer(
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Prediction sets for federated graphs, with a coverage guarantee that holds.",
    epilog=examples(
        "fedcover run cora --clients 10",
        "fedcover inspect my-graph --partition given",
        "fedcover --install-completion",
    ),
)
app.command(epilog=inspect.EXAMPLES, cls=inspect.Command)(inspect.inspect)
app.command(epilog=run.EXAMPLES, cls=run.Command)(run.run)
app.command(epilog=predict.EXAMPLES)(predict.predict)
app.command(epilog=tune.EXAMPLES, cls=tune.Command)(tune.tune)
app.command(epilog=paper.EXAMPLES)(paper.paper)
app.command(epilog=examples("fedcover report runs/cora-10"))(run.report)
app.add_typer(data.app, name="data")
app.command(epilog=site.PARTITION_EXAMPLES)(site.partition)
app.add_typer(site.app, name="site")
app.add_typer(federation.app, name="federation")
app.add_typer(federation.ledger_app, name="ledger")


def main() -> None:
    """Entry point: one sentence on stderr for what a user can mend, and the right exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a table's lines and ± are not in every encoding
            stream.reconfigure(errors="replace")
    if "_FEDCOVER_COMPLETE" in os.environ:
        os.environ["COLUMNS"] = "1000"  # else help is broken into lines, each a candidate to fish
    status, sentence = _outcome()
    if sentence:
        print(f"fedcover: {sentence}", file=sys.stderr)
    sys.exit(status)


def _outcome() -> tuple[int, str]:
    try:
        status = app(prog_name="fedcover", standalone_mode=False) or 0
    except FedcoverError as error:
        return error.exit_status, str(error)
    except ClickException as error:  # an unknown option, a missing argument, …
        return 2, _sentence(error)
    except MemoryError:
        return 1, "there is not enough memory for this run."
    except OSError as error:  # a name that is too long, a folder that may not be read, …
        place = f"{error.filename}: " if error.filename else ""
        return 1, f"{place}{error.strerror or error}."
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    # Typer turns Ctrl-C into a status of its own accord.
    return status, "interrupted; nothing is half-written." if status == INTERRUPTED else ""


def _sentence(error: ClickException) -> str:
    close = getattr(error, "possibilities", None)  # to an unknown name, the closest first
    if close:
        # Typer has put its own guess behind an unknown command.
        unknown = error.message.partition(" Did you mean")[0].rstrip(".")
        return f"{unknown}; did you mean {close[0]}?"
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    called = context.command_path if context else "fedcover"
    return text if text.endswith("?") else f"{text.rstrip('.')}; see {called} --help."


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fedcover {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _common(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  (its callback has done the work)
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit.")
    ] = False,
) -> None:
    help_if_alone(context)

"""Build the wheel, look into it, and use it from a folder of its own: ``make wheel``.

The wheel is installed without its dependencies, which are those of the environment that runs this,
and twice used: with all extras, and with every extra's module hidden, as where none was installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDED = (
    "fedcover/py.typed",
    "fedcover/graphs/embedded/cora.npz",
    "fedcover/graphs/embedded/NOTICE",
    "fedcover/report/templates/page.html.jinja",
    "fedcover/report/templates/style.css",
    "fedcover/report/vendor/d3.min.js",
    "fedcover/report/vendor/plot.umd.min.js",
    "fedcover/carriers/network/flower/app/pyproject.toml",
    "fedcover/carriers/network/flower/app/fedcover_app/__init__.py",
    "fedcover/paper/definitions/main.toml",
)
RUN = ("run", "cora", "--methods", "fed", "--seeds", "1", "--rounds", "3", "--resplits", "5")
FILES = ("results.csv", "sets.parquet", "run.json", "report.html")
# What a Python reads at its start: modules that are hidden count as not installed.
HIDE = """
import sys
for name in ("flwr", "opacus", "matplotlib", "mkdocs", "cryptography"):
    sys.modules[name] = None
"""


def main() -> None:
    """Raise, or exit with a sentence, where something is not as it should be."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pip("wheel", "--no-deps", "--wheel-dir", str(folder / "wheel"), str(ROOT))
        (wheel,) = (folder / "wheel").glob("fedcover-*.whl")
        look_into(wheel)
        pip("install", "--no-deps", "--target", str(folder / "installed"), str(wheel))
        (folder / "hidden").mkdir()
        (folder / "hidden" / "sitecustomize.py").write_text(HIDE)
        version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        for name, first in (("with extras", []), ("without extras", [folder / "hidden"])):
            use(folder, [*first, folder / "installed"], version, hidden=bool(first))
            print(f"{wheel.name}, {name}: --version, inspect and a run on cora work")


def pip(*arguments: str) -> None:
    """Call the pip of this environment."""
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", *arguments, *quiet], check=True)


def look_into(wheel: Path) -> None:
    """The wheel has what the package reads at run time, and every module of the source."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = ROOT / "src"
    modules = {path.relative_to(source).as_posix() for path in (source / "fedcover").rglob("*.py")}
    missing = sorted(({*NEEDED} | modules) - names)
    if missing:
        sys.exit(f"{wheel.name} lacks {', '.join(missing)}")
    foreign = sorted(name for name in names if not name.startswith("fedcover"))
    if foreign:
        sys.exit(f"{wheel.name} holds {', '.join(foreign)}, which would be installed beside it")


def use(folder: Path, path: list[Path], version: str, *, hidden: bool) -> None:
    """Call the installed ``fedcover`` from an empty folder."""
    work = Path(tempfile.mkdtemp(dir=folder))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}

    def call(*arguments: str, program: tuple[str, ...] = ("-m", "fedcover")) -> tuple[int, str]:
        command = [sys.executable, *program, *arguments]
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    where = call(program=("-c", "import fedcover; print(fedcover.__file__)"))
    expect(str(folder / "installed") in where[1], "the installed package is the one used", where)
    script = folder / "installed" / "bin" / "fedcover"
    shown = call("--version", program=(str(script),))
    expect(shown == (0, f"fedcover {version}\n"), "--version", shown)
    inspected = call("inspect", "cora")
    expect(inspected[0] == 0 and "calibration nodes" in inspected[1], "inspect", inspected)
    ran = call(*RUN, "--out", "run")
    there = ran[0] == 0 and all((work / "run" / name).is_file() for name in FILES)
    expect(there, "a run on cora", ran)
    if hidden:
        for extra, arguments in (
            ("flower", ("federation", "app")),
            ("privacy", ("run", "cora", "--methods", "gen", "--epsilon", "2", "--quiet")),
            ("report", ("paper", "clients", "--graphs", "cora")),
        ):
            refused = call(*arguments)
            told = f"pip install 'fedcover[{extra}]'." in refused[1]
            expect(refused[0] == 2 and told, f"the missing extra {extra} is named", refused)


def expect(holds: bool, what: str, seen: tuple[int, str]) -> None:
    """Stop with what was seen unless it holds."""
    if not holds:
        sys.exit(f"not so: {what}; exit status {seen[0]}\n{seen[1]}")


if __name__ == "__main__":
    main()

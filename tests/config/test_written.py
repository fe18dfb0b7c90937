"""What scripts/write_settings.py makes of the schema is current."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "write_settings.py"


def test_the_docs_and_the_flower_app_list_the_settings_as_they_are():
    spec = importlib.util.spec_from_file_location("write_settings", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for file, text in script.everything().items():
        assert file.read_text(encoding="utf-8") == text, f"run {SCRIPT.name}"

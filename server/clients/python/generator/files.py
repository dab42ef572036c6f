"""The generated files."""

import json
from pathlib import Path

from .document import Unsupported, read_operations
from .methods import write_methods
from .models import write_types
from .synchronous import to_synchronous

CLIENT = Path(__file__).resolve().parents[1]
PACKAGE = CLIENT / "src/saggar_client"
DOCUMENT = CLIENT.parents[1] / "openapi.json"
HEAD = "# Generated from server/openapi.json by `python3 -m generator`; do not edit.\n"
DERIVED = "# Derived from {} by `python3 -m generator`; do not edit.\n"


def generate() -> dict[str, str]:
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    client = write_methods(read_operations(document))
    files = {
        "types.py": HEAD + write_types(document),
        "_async_client.py": HEAD + client,
        "_client.py": HEAD + to_synchronous(client),
    }
    for source, target in [("_async_transport.py", "_transport.py"), ("_async_base.py", "_base.py")]:
        text = PACKAGE.joinpath(source).read_text(encoding="utf-8")
        note = f"\n\nThis file is also the source of `{target}`, which `generator` derives from it.\n"
        if text.count(note) != 1:
            raise Unsupported(f"{source} does not say that it is the source of {target}")
        files[target] = DERIVED.format(source) + to_synchronous(text.replace(note, ""))
    return files


def check() -> list[Path]:
    """Returns the files that are not current."""
    paths = {PACKAGE / name: text for name, text in generate().items()}
    return [path for path, text in paths.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def write() -> None:
    for name, text in generate().items():
        PACKAGE.joinpath(name).write_text(text, encoding="utf-8")

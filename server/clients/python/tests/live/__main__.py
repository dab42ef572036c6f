import json
import re
import sys
from pathlib import Path

from .calls import call_all
from .server import Server
from .streams import check_streams

program, saggar, folder = sys.argv[1:]
document = json.loads(Path(__file__).parents[4].joinpath("openapi.json").read_text())
identifiers = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
wanted = {re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower() for identifier in identifiers}
with Server(program, saggar) as server:
    called = call_all(server, folder)
    if missing := wanted - called:
        sys.exit(f"not called: {', '.join(sorted(missing))}")
    check_streams(server, folder)
print(f"passed {len(wanted)} operations and the streams")

"""A server process with its own data, and what it needs to be killed and started again at the same address."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Self

SECRET = "platform"


class Server:
    def __init__(self, program: str, saggar: str) -> None:
        self._program, self._saggar = program, saggar
        self._folder = tempfile.TemporaryDirectory()
        self.data = Path(self._folder.name, "data")
        self.port = 0
        # An address for documentation, which no host has.
        self._config = Path(self._folder.name, "config.toml")
        self._config.write_text('[sandbox]\noptions = ["--allow-host", "192.0.2.1:80"]\n')
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return self.data.joinpath("initial-api-key").read_text().strip()

    def start(self) -> None:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("ASH_")}
        options = ["--listen", f"127.0.0.1:{self.port}", "--data", str(self.data), "--saggar", self._saggar]
        options += ["--config", str(self._config)]
        self._process = subprocess.Popen(
            [self._program, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=variables | {"ASH_INTERNAL_SECRET": SECRET, "RUST_LOG": "error"},
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline().rsplit(":", 1)[1])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        self._process.terminate()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        listed = self._run("list", "--json")
        for line in listed.splitlines():
            self._run("end", "--remove", json.loads(line)["id"])
        self._folder.cleanup()

    def _run(self, *arguments: str) -> str:
        environment = os.environ | {"SAGGAR_STATE_DIR": str(self.data / "saggar")}
        command = [self._saggar, "session", *arguments]
        return subprocess.run(command, env=environment, check=False, stdout=subprocess.PIPE, text=True).stdout

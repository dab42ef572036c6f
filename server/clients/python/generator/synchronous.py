"""Derives the synchronous modules from the asynchronous ones, word by word."""

import re

_WORDS = [
    (r"import anyio\n", ""),
    (r"anyio\.sleep", "time.sleep"),
    (r"anyio\.fail_after\(\w+\)", "contextlib.nullcontext()"),  # Blocking calls cannot be cancelled.
    (r"\baclosing\b", "closing"),
    (r"AsyncGenerator", "Generator"),
    (r"(Generator\[\w+, None)\]", r"\1, None]"),
    (r"\bAsync(\w+)", r"\1"),
    (r"\b_async_(\w+)", r"_\1"),
    (r"__aiter__", "__iter__"),
    (r"__anext__", "__next__"),
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
    (r"StopAsyncIteration", "StopIteration"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"The asynchronous client", "The synchronous client"),
]


def to_synchronous(text: str) -> str:
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    if left := re.search(r"\b(async|await|anyio|Async\w*)\b", text):
        raise ValueError(f"{left.group()!r} has no synchronous form")
    return text

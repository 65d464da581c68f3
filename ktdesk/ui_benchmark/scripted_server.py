"""A server without a model, which streams headings, tables and code at a given pace."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from typing import Any

MODEL = "scripted"
CONTEXT = 131_072
LETTERS_PER_TOKEN = 4
PASSAGE = """\
## What moves the numbers

Decoding reads **every active weight once a token**, so its speed is bytes over bandwidth: *not* arithmetic. With
`K = 8` of 128 experts, a token touches about one sixteenth of the routed weights, and all of the attention.

| part | bytes a token | share |
|:--|--:|--:|
| attention | 412 MB | 21 % |
| routed experts | 1,310 MB | 67 % |
| shared expert | 154 MB | 8 % |
| head | 79 MB | 4 % |

1. Measure the bandwidth that one socket sustains.
2. Divide by the bytes above.
   - Leave a tenth for what overlaps badly.
   - Prefill is another matter: it is bound by arithmetic.

```python
def tokens_per_second(bandwidth_bytes: float, bytes_per_token: float, overlap: float = 0.9) -> float:
    \"\"\"The ceiling of decoding, as memory sets it.\"\"\"
    if bytes_per_token <= 0:
        raise ValueError(f"bytes_per_token must be positive: {bytes_per_token}")
    return overlap * bandwidth_bytes / bytes_per_token  # no arithmetic in it


for gigabytes in (20, 90, 300):
    print(gigabytes, round(tokens_per_second(gigabytes * 1e9, 1.955e9), 1))
```

> A share of the ceiling says more than a number of tokens: machines differ by ten, shares by a tenth.

"""


@contextmanager
def scripted_server(tok_s: float, num_tokens: int) -> Iterator[str]:
    """Its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/health":
                self._send({"status": "ready", "model": MODEL, "percent": 100.0})
            else:
                self._send({"title": MODEL, "context": CONTEXT})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            begun = time.monotonic()
            letters = cycle(PASSAGE)
            for number in range(num_tokens):
                time.sleep(max(0.0, begun + number / tok_s - time.monotonic()))
                text = "".join(next(letters) for _ in range(LETTERS_PER_TOKEN))
                self._event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
            self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            usage = {"prompt_tokens": 32, "completion_tokens": num_tokens}
            timings = {"prefill_seconds": 0.1, "decode_seconds": time.monotonic() - begun}
            self._event({"choices": [], "usage": usage, "timings": timings})
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, facts: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(facts)}\n\n".encode())

        def _send(self, facts: dict[str, Any]) -> None:
            body = json.dumps(facts).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()

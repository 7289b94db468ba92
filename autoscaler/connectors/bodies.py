"""HTTP bodies are read, not trusted."""

from __future__ import annotations

import aiohttp


async def bounded_text(answer: aiohttp.ClientResponse, most_bytes: int) -> str:
    """The body as text, decompressed, invalid UTF-8 replaced. Raises ValueError beyond `most_bytes`."""
    body = bytearray()
    async for chunk in answer.content.iter_chunked(1 << 20):
        body += chunk
        if len(body) > most_bytes:
            raise ValueError(f"the body is larger than {most_bytes >> 20} MiB")
    return body.decode("utf-8", "replace")

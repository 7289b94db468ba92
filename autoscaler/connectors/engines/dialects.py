"""How each engine wants to be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """Paths of one kind of engine.

    Attributes:
        load_path, unload_path, list_path: of the adapter endpoints.
        replaces_in_place: whether a new revision can take the place of the old one within one call.
        pins: whether an adapter can be exempt from eviction.
    """

    load_path: str
    unload_path: str
    list_path: str = "/v1/models"
    replaces_in_place: bool = False
    pins: bool = False

    def load_body(self, adapter: str, source: str, *, replace: bool, pin: bool) -> Mapping[str, str | bool]:
        """The JSON body of a load."""
        body: dict[str, str | bool] = {"lora_name": adapter, "lora_path": source}
        if self.replaces_in_place and replace:
            body["load_inplace"] = True
        if self.pins and pin:
            body["pinned"] = True
        return body


VLLM = Dialect("/v1/load_lora_adapter", "/v1/unload_lora_adapter", replaces_in_place=True)
SGLANG = Dialect("/load_lora_adapter", "/unload_lora_adapter", pins=True)

DIALECTS: Mapping[str, Dialect] = {"vllm": VLLM, "sglang": SGLANG}

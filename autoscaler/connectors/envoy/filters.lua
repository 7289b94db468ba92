-- Two things that no stock filter does. The adapter's name becomes a header, so that the route table can look it up
-- (routes match headers only); a client's own value is overwritten, and a name with control characters is dropped, since
-- it would end the header. Its hex form is a second one: where routes come one by one it names a virtual host. And the time to the first byte of a streamed answer's BODY is noted: engines send the headers
-- of a stream at once, so the time to the first byte of the answer says nothing.
function envoy_on_request(handle)
  local metadata = handle:streamInfo():dynamicMetadata()
  local lb = metadata:get("envoy.lb")
  local name = lb and lb["adapter"] or ""
  if name:find("%c") then
    name = ""
  end
  handle:headers():replace("x-lora-adapter", name)
  local host = name:gsub(".", function(char) return string.format("%02x", char:byte()) end)
  handle:headers():replace("x-lora-host", host == "" and "-" or host)
  handle:clearRouteCache()
  metadata:set("llm", "began_ms", handle:timestamp())
end

function envoy_on_response(handle)
  local own = handle:streamInfo():dynamicMetadata():get("llm")
  local kind = handle:headers():get("content-type")
  if own == nil or kind == nil or not kind:find("text/event-stream", 1, true) then
    return
  end
  for _ in handle:bodyChunks() do
    handle:streamInfo():dynamicMetadata():set("llm", "ttft_ms", handle:timestamp() - own["began_ms"])
    return
  end
end

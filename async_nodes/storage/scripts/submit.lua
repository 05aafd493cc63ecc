-- submit: accept tasks. Row: id, tenant, list, private, tail, inputs_at, inputs_len, delay,
-- deadline, timeout, ttl, max_dispatches, idempotency (32 hex or blank), fingerprint.
-- `tail` is the document from "node" to the comma before "attempts"; inputs_at counts from its
-- start. Writes t, k, x, q, due and the list. Verdicts: ok version created | replay id |
-- mismatch id.
if LIMIT == 0 then gathered = {} end -- a gate looks at what earlier rows have put out
local verdicts = each(14, accept)
if gathered then write_gathered() end
return verdicts

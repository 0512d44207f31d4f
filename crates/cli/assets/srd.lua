-- Dissector of software SRD for Wireshark and tshark: `srd wireshark --install`.
--
-- Packets of UDP ports 18700 to 18955 are dissected, and those of other ports if their first packet
-- proves what it is: by its checksum, or by the sizes of a sealed handshake. "Decode As" (-d) works for
-- all others. The contents of sealed packets stay closed: Wireshark gives dissectors in Lua neither
-- the secrets of a capture nor a cipher. `srd wireshark --unseal` writes a capture without seals.

-- Tables: written by `cargo xtask wireshark --update`.
local TYPES = {
  [1] = { name = "Open", bytes = 52, reliable = false, payload = "zero padding", ack = "no", what = "requests a context" },
  [2] = { name = "OpenAck", bytes = 52, reliable = false, payload = "zero padding", ack = "may", what = "accepts it" },
  [3] = { name = "Challenge", bytes = 12, reliable = false, payload = "no", ack = "no", what = "asks for proof that the peer receives at its address" },
  [4] = { name = "Close", bytes = 0, reliable = false, payload = "no", ack = "may", what = "requests to drop an idle context" },
  [5] = { name = "CloseAck", bytes = 0, reliable = false, payload = "no", ack = "may", what = "agrees" },
  [6] = { name = "Reset", bytes = 16, reliable = false, payload = "no", ack = "no", what = "the tag is unknown, or the sender shuts down" },
  [7] = { name = "Ack", bytes = 0, reliable = false, payload = "no", ack = "must", what = "an acknowledgment block and nothing else" },
  [8] = { name = "Probe", bytes = 0, reliable = false, payload = "zero padding", ack = "may", what = "measures one path, or tests whether packets of a size pass" },
  [16] = { name = "Send", bytes = 12, reliable = true, payload = "yes", ack = "may", what = "a message of one packet" },
  [17] = { name = "SendImm", bytes = 16, reliable = true, payload = "yes", ack = "may", what = "the same with immediate data" },
  [18] = { name = "Write", bytes = 24, reliable = true, payload = "yes", ack = "may", what = "one segment of an RDMA write" },
  [19] = { name = "WriteImm", bytes = 32, reliable = true, payload = "yes", ack = "may", what = "one segment of a write that delivers immediate data" },
  [20] = { name = "ReadReq", bytes = 28, reliable = true, payload = "no", ack = "may", what = "requests a range of a region" },
  [21] = { name = "ReadResp", bytes = 12, reliable = true, payload = "yes", ack = "may", what = "one segment of that range" },
  [22] = { name = "Tombstone", bytes = 0, reliable = true, payload = "no", ack = "may", what = "replaces the content of an abandoned PSN" },
  [23] = { name = "Cancel", bytes = 4, reliable = true, payload = "no", ack = "may", what = "frees what the peer holds for a cancelled message" },
  [24] = { name = "Ud", bytes = 12, reliable = false, payload = "yes", ack = "may", what = "unreliable datagram" },
  [25] = { name = "UdImm", bytes = 16, reliable = false, payload = "yes", ack = "may", what = "the same with immediate data" },
}
local FLAGS = {
  [0] = { name = "ACK_BLOCK", what = "an acknowledgment block follows the common header" },
  [1] = { name = "ACK_REQUEST", what = "acknowledge at once (end of a burst, probe, last in the window)" },
  [2] = { name = "SEALED", what = "the packet is sealed" },
  [3] = { name = "CHECKED/KEY_PHASE", what = "in a packet that is not sealed: a checksum follows the common header" },
}
local VERDICTS = {
  [0] = { name = "Ok", what = "accepted: a set bit without an entry; never in the list" },
  [1] = { name = "Rnr", what = "no receive was posted, or no completion slot was free: retry later with a new PSN" },
  [2] = { name = "Busy", what = "the responder's table is full: a read is retried, not counted; a write with immediate ends with status 12" },
  [3] = { name = "BadQpn", what = "no such queue pair, or it cannot receive" },
  [4] = { name = "BadQkey", what = "wrong Q_Key" },
  [5] = { name = "BadLength", what = "the posted receive is too short, or the length does not fit the request" },
  [6] = { name = "BadRkey", what = "rkey unknown, range out of the region, or access not allowed" },
  [7] = { name = "UnknownPeer", what = "the responder has no address handle for the requester" },
  [8] = { name = "FeatureMismatch", what = "the responder does not offer the operation" },
  [9] = { name = "NoRequest", what = "no read waits for this response" },
}
local FEATURES = {
  [0] = { name = "RDMA_READ", what = "serves RDMA reads" },
  [1] = { name = "RDMA_WRITE", what = "serves RDMA writes" },
  [2] = { name = "CREDITS", what = "grants and obeys receiver credits" },
  [3] = { name = "ECN", what = "echoes the CE mark" },
  [4] = { name = "SEALED", what = "reserved, never sent: sealed contexts are opened by packets of their own" },
  [5] = { name = "HOST_SIGNAL", what = "tells that the host falls behind (H of the acknowledgment block), and understands it" },
  [6] = { name = "INTEGRITY", what = "requests a checksum in every packet" },
}
local RESET_CODES = {
  [1] = { name = "UnknownTag", what = "the tag is unknown: a restart, or the context was closed" },
  [2] = { name = "GoingAway", what = "the engine shuts down" },
  [3] = { name = "NoRoom", what = "the context table is full" },
  [4] = { name = "BadParams", what = "unacceptable parameters: an MTU below 64, or a window outside of 16 to 32,768" },
  [5] = { name = "SealRequired", what = "answers an Open: the engine accepts sealed contexts only" },
  [6] = { name = "SealUnknown", what = "answers a SealedOpen: the engine has no key file" },
  [7] = { name = "KeyUnknown", what = "answers a SealedOpen: the engine has no key with its number, or another one under it" },
}
local READ_STATUSES = {
  [0] = { name = "Ok", what = "the segment's bytes follow" },
  [1] = { name = "RegionGone", what = "the read has failed: its region was deregistered meanwhile, or it lost its place because it made too little progress; no bytes may follow" },
}
local SEALED_TYPES = {
  [9] = { name = "SealedOpen", what = "requests a sealed context" },
  [10] = { name = "SealedOpenAck", what = "accepts it" },
  [11] = { name = "SealedChallenge", what = "asks for proof that the sender of a SealedOpen receives at its address, and is no copy" },
  [12] = { name = "ContextQuery", what = "asks whether the peer still has a context" },
  [13] = { name = "ContextGone", what = "answers that it has not" },
}
local BACKLOG = { [9] = "16", [10] = "32", [11] = "64", [12] = "256", [13] = "1024", [14] = "4096", [15] = "more", }
local LAYOUTS = {
  header = {
    { name = "version", bit = 0, bits = 3, what = "1" },
    { name = "type", bit = 3, bits = 5, what = "the table above" },
    { name = "backlog", bit = 8, bits = 4, what = "how many packets the sender still has for this peer, as a class; at most the class of those that it would keep grants for (CC-48)" },
    { name = "flags", bit = 12, bits = 4, what = "below" },
    { name = "path", bit = 16, bits = 8, what = "index, in the sender's numbering, of the path that the packet was sent on" },
    { name = "slot", bit = 24, bits = 8, what = "the sender's engine slot: it receives at its address, UDP port base + slot" },
    { name = "dst_tag", bit = 32, bits = 32, what = "the tag that the receiver chose for this context; 0 in an Open, and in a Reset whose sender does not know it" },
    { name = "tx_num", bit = 64, bits = 32, what = "low half of the transmission number: a 64-bit count of all packets in this direction of the context, including acknowledgments, probes and retransmissions. Never repeated. The receiver takes the 64-bit value nearest to the latest one it knows; tx_num_start of the handshake gives the first" },
    { name = "timestamp", bit = 96, bits = 32, what = "the sender's monotonic clock in units of 16 ns (wraps after 68.7 s); opaque to the receiver, which echoes it" },
    { name = "psn", bit = 128, bits = 32, what = "reliable types: the packet's PSN, which identifies what is delivered once. Other types: the next PSN that the sender will use" },
    { name = "una_delta", bit = 160, bits = 16, what = "psn - una. Every PSN below una is resolved: delivered, failed or abandoned" },
    { name = "ack_echo", bit = 176, bits = 16, what = "low half of the tx_num of the last packet with an acknowledgment block that the sender has received: tells the peer which of its acknowledgments arrive, and so which return paths work" },
  },
  checksum = {
    { name = "checksum", bit = 0, bits = 32, what = "" },
  },
  ack = {
    { name = "cum", bit = 0, bits = 32, what = "every PSN before this one has arrived" },
    { name = "base", bit = 32, bits = 32, what = "PSN of the lowest bit of the first bitmap word" },
    { name = "credit", bit = 64, bits = 32, what = "cumulative grant of the receiver in units of 64 bytes; only if CREDITS was negotiated, else 0" },
    { name = "rx_budget", bit = 96, bits = 32, what = "bytes that the receiver's buffers let this sender have in flight; all ones = no limit" },
    { name = "rxq_drops", bit = 128, bits = 32, what = "datagrams that the receiver's socket has dropped so far" },
    { name = "ce_count", bit = 160, bits = 32, what = "packets of this context that have arrived with the CE mark so far" },
    { name = "rxq_depth", bit = 192, bits = 16, what = "full packets waiting in the receiver (saturating), as its datapath told last: in the socket, counted in bytes, or in the ring between the card and the memory of the host. For tools; senders go by rx_budget and H" },
    { name = "words", bit = 208, bits = 4, what = "number of bitmap words, at most 8" },
    { name = "verdicts", bit = 212, bits = 5, what = "number of entries with verdicts, at most 16" },
    { name = "echoes", bit = 217, bits = 4, what = "number of echoes, at most 8" },
    { name = "partial", bit = 221, bits = 1, what = "partial: there are more verdicts than the list holds" },
    { name = "host", bit = 222, bits = 1, what = "host: more waits in the receiver than its threshold, so it takes less than it is sent. Only if HOST_SIGNAL was negotiated, else 0. The block in the packet with the highest tx_num says what holds; so it is with rx_budget and rxq_drops" },
    { name = "reserved", bit = 223, bits = 1, what = "" },
  },
  verdict = {
    { name = "psn", bit = 0, bits = 32, what = "" },
    { name = "mask", bit = 32, bits = 1, what = "" },
    { name = "code", bit = 33, bits = 7, what = "" },
    { name = "psns", bit = 40, bits = 24, what = "" },
  },
  echo = {
    { name = "tx_num", bit = 0, bits = 32, what = "" },
    { name = "timestamp", bit = 32, bits = 32, what = "" },
    { name = "delay", bit = 64, bits = 16, what = "" },
    { name = "path", bit = 80, bits = 8, what = "" },
    { name = "reserved", bit = 88, bits = 7, what = "" },
    { name = "ce", bit = 95, bits = 1, what = "" },
  },
  open = {
    { name = "tag", bit = 0, bits = 32, what = "the dst_tag required in packets to the sender of this packet" },
    { name = "incarnation", bit = 32, bits = 64, what = "random number of this run of the engine: a restarted engine has another" },
    { name = "echo_tag", bit = 96, bits = 32, what = "OpenAck: the tag of the Open that it answers. Open: 0" },
    { name = "psn_start", bit = 128, bits = 32, what = "first PSN that the sender will use" },
    { name = "tx_num_start", bit = 160, bits = 64, what = "first transmission number that it will use" },
    { name = "window", bit = 224, bits = 16, what = "PSNs that it can receive beyond the lowest missing one" },
    { name = "mtu", bit = 240, bits = 16, what = "largest payload that it accepts in one packet" },
    { name = "reads_max", bit = 256, bits = 16, what = "reads that it serves concurrently for this context" },
    { name = "write_imms_max", bit = 272, bits = 16, what = "writes with immediate of several segments that it tracks concurrently for this context" },
    { name = "rx_budget", bit = 288, bits = 32, what = "bytes that the peer may have in flight initially; all ones = no limit" },
    { name = "features", bit = 320, bits = 32, what = "capabilities, one bit each; bits that the receiver does not know are ignored" },
    { name = "cookie", bit = 352, bits = 64, what = "the cookie of the Challenge that it answers, or 0" },
  },
  challenge = {
    { name = "echo_tag", bit = 0, bits = 32, what = "" },
    { name = "cookie", bit = 32, bits = 64, what = "" },
  },
  reset = {
    { name = "echo_tag", bit = 0, bits = 32, what = "" },
    { name = "code", bit = 32, bits = 8, what = "" },
    { name = "reserved", bit = 40, bits = 24, what = "" },
    { name = "nonce", bit = 64, bits = 64, what = "" },
  },
  message = {
    { name = "src_qpn", bit = 0, bits = 16, what = "" },
    { name = "dst_qpn", bit = 16, bits = 16, what = "" },
    { name = "qkey", bit = 32, bits = 32, what = "" },
    { name = "msg_id", bit = 64, bits = 32, what = "" },
    { name = "imm", bit = 96, bits = 32, what = "" },
  },
  write = {
    { name = "src_qpn", bit = 0, bits = 16, what = "" },
    { name = "dst_qpn", bit = 16, bits = 16, what = "" },
    { name = "qkey", bit = 32, bits = 32, what = "" },
    { name = "msg_id", bit = 64, bits = 32, what = "" },
    { name = "rkey", bit = 96, bits = 32, what = "" },
    { name = "raddr", bit = 128, bits = 64, what = "" },
  },
  write_imm = {
    { name = "src_qpn", bit = 0, bits = 16, what = "" },
    { name = "dst_qpn", bit = 16, bits = 16, what = "" },
    { name = "qkey", bit = 32, bits = 32, what = "" },
    { name = "msg_id", bit = 64, bits = 32, what = "" },
    { name = "rkey", bit = 96, bits = 32, what = "" },
    { name = "raddr", bit = 128, bits = 64, what = "" },
    { name = "msg_len", bit = 192, bits = 32, what = "" },
    { name = "imm", bit = 224, bits = 32, what = "" },
  },
  read_req = {
    { name = "src_qpn", bit = 0, bits = 16, what = "" },
    { name = "dst_qpn", bit = 16, bits = 16, what = "" },
    { name = "qkey", bit = 32, bits = 32, what = "" },
    { name = "msg_id", bit = 64, bits = 32, what = "" },
    { name = "rkey", bit = 96, bits = 32, what = "" },
    { name = "raddr", bit = 128, bits = 64, what = "" },
    { name = "len", bit = 192, bits = 32, what = "" },
  },
  read_resp = {
    { name = "msg_id", bit = 0, bits = 32, what = "" },
    { name = "offset", bit = 32, bits = 32, what = "" },
    { name = "status", bit = 64, bits = 8, what = "" },
    { name = "reserved", bit = 72, bits = 24, what = "" },
  },
  sealed_open = {
    { name = "tag", bit = 0, bits = 32, what = "the dst_tag required in packets to the initiator, never 0. It stands in the header of every packet to it anyway, so nothing is lost by showing it; a responder can answer without opening anything" },
    { name = "key_id", bit = 32, bits = 32, what = "number of the key in the key file" },
    { name = "share", bit = 64, bits = 256, what = "public part of a fresh X25519 key. The responder's copy of it names the handshake" },
    { name = "suites", bit = 320, bits = 448, what = "the ciphers that the initiator accepts, the preferred one first, then zeros: 1 = AES-256-GCM, 2 = ChaCha20-Poly1305. The responder takes the first that it accepts, and says so in the first byte of its own field; the other three are 0. Both fields are authenticated, so nobody can make the ends choose a weaker one" },
    { name = "tag_of_that_seal", bit = 768, bits = 128, what = "" },
    { name = "cookie", bit = 896, bits = 64, what = "the cookie of the SealedChallenge that it answers, or 0" },
    { name = "mac", bit = 960, bits = 128, what = "keyed hash" },
  },
  sealed_open_ack = {
    { name = "share", bit = 0, bits = 256, what = "public part of a fresh X25519 key. The responder's copy of it names the handshake" },
    { name = "suite", bit = 256, bits = 448, what = "" },
    { name = "tag_of_that_seal", bit = 704, bits = 128, what = "" },
    { name = "mac", bit = 832, bits = 128, what = "keyed hash" },
  },
  sealed_challenge = {
    { name = "echo_tag", bit = 0, bits = 32, what = "" },
    { name = "cookie", bit = 32, bits = 64, what = "the cookie of the SealedChallenge that it answers, or 0" },
    { name = "mac", bit = 96, bits = 128, what = "keyed hash" },
  },
  context_query = {
    { name = "key_id", bit = 0, bits = 32, what = "" },
    { name = "echo_tag", bit = 32, bits = 32, what = "" },
    { name = "nonce", bit = 64, bits = 64, what = "" },
    { name = "code", bit = 128, bits = 8, what = "" },
    { name = "zeros", bit = 136, bits = 56, what = "" },
    { name = "mac", bit = 192, bits = 128, what = "" },
  },
}
-- End of the tables.

local VERSION = 1
local HEADER_BYTES = 24
local TAG_BYTES = 16
local PORT_FIRST, PORT_LAST = 18700, 18955
local FLAG_ACK, FLAG_SEALED, FLAG_CHECKED = 1, 4, 8
local ACK_ECHO_UNIT_NS = 64

local srd = Proto("srd", "Scalable Reliable Datagram in software")
srd.prefs.checksum = Pref.bool("Verify checksums", true, "Compute the CRC-32C of each packet that has one")
srd.prefs.heuristic = Pref.bool("Find packets on other ports", true,
  "Look at UDP packets of all ports; the checksum or the sizes of a handshake prove what they are")

-- Names for numbers --------------------------------------------------------------------------------

local function names_of(list)
  local names = {}
  for number, entry in pairs(list) do names[number] = entry.name end
  return names
end

for number, entry in pairs(SEALED_TYPES) do
  TYPES[number] = { name = entry.name, bytes = 0, sealed = true, payload = "sealed", ack = "no", what = entry.what }
end

local BACKLOG_NAMES = {}
for class = 0, 8 do BACKLOG_NAMES[class] = tostring(class) end
for class, packets in pairs(BACKLOG) do BACKLOG_NAMES[class] = packets end

local VALUES = {
  ["header.type"] = names_of(TYPES),
  ["header.backlog"] = BACKLOG_NAMES,
  ["verdict.code"] = names_of(VERDICTS),
  ["reset.code"] = names_of(RESET_CODES),
  ["context_query.code"] = names_of(RESET_CODES),
  ["read_resp.status"] = names_of(READ_STATUSES),
}

-- Fields -------------------------------------------------------------------------------------------

-- The layout of each type's own header.
local BODIES = {
  Open = "open", OpenAck = "open", Challenge = "challenge", Reset = "reset",
  Send = "message", SendImm = "message", Ud = "message", UdImm = "message",
  Write = "write", WriteImm = "write_imm", ReadReq = "read_req", ReadResp = "read_resp",
  SealedOpen = "sealed_open", SealedOpenAck = "sealed_open_ack",
  SealedChallenge = "sealed_challenge", ContextQuery = "context_query", ContextGone = "context_query",
}

-- What a field's name begins with, behind "srd."
local PREFIXES = {
  header = "", checksum = "", ack = "ack.", verdict = "ack.verdict.", echo = "ack.echo.",
  message = "", write = "", write_imm = "", read_req = "", read_resp = "",
}

local HEXADECIMAL = {
  dst_tag = true, tag = true, echo_tag = true, incarnation = true, cookie = true, nonce = true,
  checksum = true, qkey = true, rkey = true, raddr = true, imm = true, flags = true, features = true,
}

local all_fields, made = {}, {}

-- A field of a layout; layouts that share a name share the field.
local function field_of(layout, entry)
  local prefix = PREFIXES[layout] or (layout .. ".")
  local abbreviation = "srd." .. prefix .. entry.name
  if made[abbreviation] then return made[abbreviation] end
  local values = VALUES[layout .. "." .. entry.name]
  local base = HEXADECIMAL[entry.name] and base.HEX or base.DEC
  local what = entry.what ~= "" and entry.what or nil
  local field
  if entry.bits > 64 then
    field = ProtoField.bytes(abbreviation, entry.name, nil, what)
  elseif entry.bits > 32 then
    field = ProtoField.uint64(abbreviation, entry.name, base, nil, nil, what)
  elseif entry.bits > 16 then
    field = ProtoField.uint32(abbreviation, entry.name, base, values, nil, what)
  elseif entry.bits > 8 then
    field = ProtoField.uint16(abbreviation, entry.name, base, values, nil, what)
  else
    field = ProtoField.uint8(abbreviation, entry.name, base, values, nil, what)
  end
  made[abbreviation] = field
  all_fields[#all_fields + 1] = field
  return field
end

for layout, entries in pairs(LAYOUTS) do
  for _, entry in ipairs(entries) do entry.field = field_of(layout, entry) end
end

-- One bit each, as a field that can be filtered by.
local function bits_of(prefix, list)
  local bits = {}
  for bit, entry in pairs(list) do
    local field = ProtoField.bool("srd." .. prefix .. "." .. entry.name:lower():gsub("/", "_"), entry.name,
      base.NONE, nil, nil, entry.what)
    bits[bit] = field
    all_fields[#all_fields + 1] = field
  end
  return bits
end

local flag_bits = bits_of("flag", FLAGS)
local feature_bits = bits_of("feature", FEATURES)

local function extra(make, ...)
  local field = make(...)
  all_fields[#all_fields + 1] = field
  return field
end

local f_word = extra(ProtoField.uint64, "srd.ack.word", "bitmap word", base.HEX)
local f_arrived = extra(ProtoField.uint32, "srd.ack.arrived", "PSNs that the bitmap shows as arrived")
local f_delay_ns = extra(ProtoField.uint32, "srd.ack.echo.delay_ns", "delay in nanoseconds")
local f_una = extra(ProtoField.uint32, "srd.una", "una: every PSN below it is resolved")
local f_msg_id = extra(ProtoField.uint32, "srd.cancel.msg_id", "msg_id")
local f_ok = extra(ProtoField.bool, "srd.checksum.ok", "checksum is right")
local f_payload = extra(ProtoField.bytes, "srd.payload", "payload")
local f_padding = extra(ProtoField.bytes, "srd.padding", "zeros that pad")
local f_sealed = extra(ProtoField.bytes, "srd.sealed", "sealed: encrypted, and authenticated with the header")
local f_seal_tag = extra(ProtoField.bytes, "srd.seal_tag", "tag of the seal")
srd.fields = all_fields

local e_refused = ProtoExpert.new("srd.refused", "A receiver refuses this packet",
  expert.group.MALFORMED, expert.severity.ERROR)
local e_checksum = ProtoExpert.new("srd.checksum.wrong", "The checksum is wrong",
  expert.group.CHECKSUM, expert.severity.ERROR)
local e_verdict = ProtoExpert.new("srd.ack.verdict", "The receiver did not accept a packet",
  expert.group.RESPONSE_CODE, expert.severity.WARN)
local e_reset = ProtoExpert.new("srd.reset", "The context is refused or unknown",
  expert.group.RESPONSE_CODE, expert.severity.WARN)
srd.experts = { e_refused, e_checksum, e_verdict, e_reset }

-- Reading ------------------------------------------------------------------------------------------


local function bytes_of(layout)
  local last = LAYOUTS[layout][#LAYOUTS[layout]]
  return math.ceil((last.bit + last.bits) / 8)
end

-- Adds all fields of a layout at a place, and returns their numbers by name.
local function layout_add(tree, tvb, at, layout)
  local numbers = {}
  local range = tvb(at, bytes_of(layout))
  for _, entry in ipairs(LAYOUTS[layout]) do
    local first = math.floor(entry.bit / 8)
    local last = math.ceil((entry.bit + entry.bits) / 8)
    local part = range(first, last - first)
    if entry.bits > 32 then
      numbers[entry.name] = { item = tree:add(entry.field, part) }
    else
      local number = range:bitfield(entry.bit, entry.bits)
      numbers[entry.name] = number
      numbers[entry.name .. "_item"] = tree:add(entry.field, part, number)
    end
  end
  return numbers
end

local function bits_add(item, part, bits, number)
  local order = {}
  for bit_number in pairs(bits) do order[#order + 1] = bit_number end
  table.sort(order)
  for _, bit_number in ipairs(order) do
    item:add(bits[bit_number], part, bit.band(number, bit.lshift(1, bit_number)) ~= 0)
  end
end

local CRC = {}
for byte = 0, 255 do
  local crc = byte
  for _ = 1, 8 do
    local low = bit.band(crc, 1)
    crc = bit.rshift(crc, 1)
    if low == 1 then crc = bit.bxor(crc, 0x82f63b78) end
  end
  CRC[byte] = crc
end

-- CRC-32C of the datagram with zeros in place of the checksum.
local function crc32c(tvb)
  local crc = 0xffffffff
  local bytes = tvb:bytes()
  for at = 0, bytes:len() - 1 do
    local byte = (at >= HEADER_BYTES and at < HEADER_BYTES + 4) and 0 or bytes:get_index(at)
    crc = bit.bxor(bit.rshift(crc, 8), CRC[bit.band(bit.bxor(crc, byte), 0xff)])
  end
  crc = bit.bnot(crc)
  return crc < 0 and crc + 4294967296 or crc
end

local function hex(number) return string.format("%08x", number % 4294967296) end

-- A packet that ends too early, or has bytes that its type does not have.
local function refuse(state, why)
  state.tree:add_proto_expert_info(e_refused, why)
  state.refused = why
  return nil
end

-- The acknowledgment block at a place: returns the place behind it.
local function ack_add(state, at)
  local tvb, fixed = state.tvb, bytes_of("ack")
  if tvb:len() < at + fixed then return refuse(state, "truncated: the acknowledgment block ends early") end
  local tree = state.tree:add(srd, tvb(at, fixed), "Acknowledgment block")
  local ack = layout_add(tree, tvb, at, "ack")
  if ack.words > 8 or ack.verdicts > 16 or ack.echoes > 8 then
    return refuse(state, "list_too_long: the acknowledgment block has a list that is longer than allowed")
  end
  local length = fixed + 8 * ack.words + bytes_of("verdict") * ack.verdicts + bytes_of("echo") * ack.echoes
  if tvb:len() < at + length then return refuse(state, "truncated: the lists of the acknowledgment block end early") end
  tree:set_len(length)
  state.info = string.format("%s ack %d", state.info, ack.cum)
  at = at + fixed
  local arrived = 0
  for word = 0, ack.words - 1 do
    local item = tree:add(f_word, tvb(at, 8))
    local psns = {}
    for place = 0, 63 do
      if tvb(at, 8):bitfield(63 - place, 1) == 1 then
        psns[#psns + 1] = tostring((ack.base + 64 * word + place) % 4294967296)
      end
    end
    arrived = arrived + #psns
    item:append_text(": PSNs " .. (#psns > 0 and table.concat(psns, " ") or "none"))
    at = at + 8
  end
  if ack.words > 0 then tree:add(f_arrived, arrived):set_generated() end
  for _ = 1, ack.verdicts do
    local entry = tree:add(srd, tvb(at, bytes_of("verdict")), "Verdict")
    local verdict = layout_add(entry, tvb, at, "verdict")
    local known = VERDICTS[verdict.code]
    if not known or verdict.code == 0 or verdict.psns == 0 or (verdict.mask == 0 and verdict.psns > 65535) then
      return refuse(state, "value: an entry with verdicts that the format does not have")
    end
    local form = verdict.mask == 1 and string.format("mask %06x behind %d", verdict.psns, verdict.psn)
      or string.format("%d PSNs from %d", verdict.psns, verdict.psn)
    entry:set_text("Verdict " .. known.name .. ": " .. form)
    entry:add_proto_expert_info(e_verdict, known.name .. ": " .. known.what)
    state.info = state.info .. " " .. known.name
    at = at + bytes_of("verdict")
  end
  for _ = 1, ack.echoes do
    local entry = tree:add(srd, tvb(at, bytes_of("echo")), "Echo")
    local echo = layout_add(entry, tvb, at, "echo")
    entry:set_text(string.format("Echo of transmission %d on path %d", echo.tx_num, echo.path))
    if echo.delay < 65535 then entry:add(f_delay_ns, echo.delay * ACK_ECHO_UNIT_NS):set_generated() end
    if echo.reserved ~= 0 then return refuse(state, "value: a reserved bit of an echo is not zero") end
    at = at + bytes_of("echo")
  end
  if ack.reserved ~= 0 then return refuse(state, "value: the reserved bit of the acknowledgment block is not zero") end
  return at
end

-- The type's own header at a place: returns the place behind it.
local function body_add(state, at)
  local tvb, kind = state.tvb, state.kind
  local length = kind.bytes
  if tvb:len() < at + length then return refuse(state, "truncated: the header of the type ends early") end
  if length == 0 then return at end
  local tree = state.tree:add(srd, tvb(at, length), kind.name)
  if kind.name == "Cancel" then
    tree:add(f_msg_id, tvb(at, 4))
    return at + length
  end
  local layout = BODIES[kind.name]
  local body = {}
  for _, entry in ipairs(LAYOUTS[layout]) do
    local first, last = math.floor(entry.bit / 8), math.ceil((entry.bit + entry.bits) / 8)
    -- The drawing of Send has the immediate data that only some types carry.
    if last <= length then
      local part = tvb(at + first, last - first)
      if entry.bits > 32 then
        tree:add(entry.field, part)
      else
        body[entry.name] = tvb(at, length):bitfield(entry.bit, entry.bits)
        local item = tree:add(entry.field, part, body[entry.name])
        if entry.name == "features" then bits_add(item, part, feature_bits, body.features) end
      end
    end
  end
  if body.src_qpn then
    state.info = string.format("%s QP %d > %d message %d", state.info, body.src_qpn, body.dst_qpn, body.msg_id)
  elseif body.offset then
    state.info = string.format("%s message %d offset %d", state.info, body.msg_id, body.offset)
  elseif body.code then
    local known = RESET_CODES[body.code]
    if not known then return refuse(state, "value: a reason of a Reset that is not in the table") end
    tree:add_proto_expert_info(e_reset, known.name .. ": " .. known.what)
    state.info = state.info .. " " .. known.name
  elseif body.mtu then
    state.info = string.format("%s tag %s mtu %d window %d", state.info, hex(body.tag), body.mtu, body.window)
  end
  for name, number in pairs(body) do
    if name:sub(1, 8) == "reserved" and number ~= 0 then
      return refuse(state, "value: reserved bits are not zero")
    end
  end
  if body.status and not READ_STATUSES[body.status] then
    return refuse(state, "value: a status that is not in the table")
  end
  state.status = body.status
  return at + length
end

-- What follows the headers.
local function rest_add(state, at)
  local tvb, kind = state.tvb, state.kind
  local length = tvb:len() - at
  if length == 0 then return end
  local rest = tvb(at, length)
  local is_payload = kind.payload == "yes" and (state.status == nil or state.status == 0)
  if is_payload then
    state.tree:add(f_payload, rest)
    state.info = string.format("%s len %d", state.info, length)
    state.payload = rest
  elseif kind.payload == "zero padding" then
    state.tree:add(f_padding, rest)
    local bytes = rest:bytes()
    for place = 0, length - 1 do
      if bytes:get_index(place) ~= 0 then return refuse(state, "trailing_bytes: padding that is not zero") end
    end
  else
    state.tree:add(f_payload, rest)
    refuse(state, "trailing_bytes: " .. kind.name .. " has no payload")
  end
end

-- What follows the common header of a sealed packet.
local function sealed_add(state)
  local tvb, at, kind = state.tvb, HEADER_BYTES, state.kind
  local layout = kind.sealed and BODIES[kind.name]
  if layout then
    local length = bytes_of(layout)
    if tvb:len() < at + length then return refuse(state, "truncated: the sealed handshake ends early") end
    layout_add(state.tree:add(srd, tvb(at, length), kind.name), tvb, at, layout)
    if tvb:len() > at + length then state.tree:add(f_padding, tvb(at + length)) end
    return
  end
  if tvb:len() < at + TAG_BYTES then return refuse(state, "truncated: a sealed packet has a tag of 16 bytes") end
  local length = tvb:len() - at - TAG_BYTES
  if length > 0 then state.tree:add(f_sealed, tvb(at, length)) end
  state.tree:add(f_seal_tag, tvb(at + length, TAG_BYTES))
  state.info = string.format("%s sealed len %d", state.info, length)
end

-- The common header: returns its numbers.
local function header_add(state)
  local tvb = state.tvb
  local tree = state.tree:add(srd, tvb(0, HEADER_BYTES), "Common header")
  local header = layout_add(tree, tvb, 0, "header")
  local flags = header.flags
  local is_sealed = bit.band(flags, FLAG_SEALED) ~= 0
  bits_add(header.flags_item, tvb(1, 1), flag_bits, flags)
  local una = (header.psn - header.una_delta) % 4294967296
  tree:add(f_una, una):set_generated()
  state.info = string.format("%s path %d tx %d psn %d", state.kind.name, header.path, header.tx_num, header.psn)
  state.flags, state.is_sealed = flags, is_sealed
  return header
end

local function checksum_add(state, at)
  local tvb = state.tvb
  if tvb:len() < at + 4 then return refuse(state, "truncated: the checksum is missing") end
  local checksum = layout_add(state.tree, tvb, at, "checksum")
  if srd.prefs.checksum then
    local is_right = crc32c(tvb) == checksum.checksum
    checksum.checksum_item:add(f_ok, is_right):set_generated()
    if not is_right then
      state.tree:add_proto_expert_info(e_checksum)
      return refuse(state, "checksum: the packet was damaged, or cut by the capture")
    end
  end
  return at + 4
end

local function parts_add(state)
  local tvb, kind = state.tvb, state.kind
  local at = HEADER_BYTES
  if not state.is_sealed and bit.band(state.flags, FLAG_CHECKED) ~= 0 then
    at = checksum_add(state, at)
    if not at then return end
  end
  if state.is_sealed or kind.sealed then
    if not state.is_sealed then return refuse(state, "type: a number of sealed contexts without the flag SEALED") end
    return sealed_add(state)
  end
  local has_ack = bit.band(state.flags, FLAG_ACK) ~= 0
  if has_ack and kind.ack == "no" then return refuse(state, "value: " .. kind.name .. " has no acknowledgment block") end
  if not has_ack and kind.ack == "must" then return refuse(state, "value: an Ack without an acknowledgment block") end
  if has_ack then
    at = ack_add(state, at)
    if not at then return end
  end
  at = body_add(state, at)
  if at then rest_add(state, at) end
end

function srd.dissector(tvb, pinfo, tree)
  pinfo.cols.protocol = "SRD"
  local state = { tvb = tvb, tree = tree:add(srd, tvb()), info = "" }
  if tvb:len() == 0 or tvb(0, 1):bitfield(0, 3) ~= VERSION then
    refuse(state, "version: only version 1 is known")
  else
    state.kind = TYPES[tvb(0, 1):bitfield(3, 5)]
    if tvb:len() < HEADER_BYTES then
      refuse(state, "truncated: shorter than the common header")
    else
      if not state.kind then
        state.kind = { name = "unknown type", payload = "no", ack = "no", bytes = 0 }
        header_add(state)
        refuse(state, "type: a number that is not in the table")
      else
        header_add(state)
        parts_add(state)
      end
    end
  end
  if state.refused then state.info = state.info .. " [refused: " .. state.refused .. "]" end
  state.tree:append_text(": " .. state.info)
  pinfo.cols.info = state.info
  return tvb:len()
end

-- Finding ------------------------------------------------------------------------------------------

-- Receivers, as address and port, of which a packet has proved what it is.
local receivers = {}
function srd.init() receivers = {} end

-- Whether the common header can be one of this format.
local function fits(tvb)
  if tvb:len() < HEADER_BYTES or tvb(0, 1):bitfield(0, 3) ~= VERSION then return false end
  local kind, flags = TYPES[tvb(0, 1):bitfield(3, 5)], tvb(1, 1):bitfield(4, 4)
  if not kind then return false end
  local is_sealed = bit.band(flags, FLAG_SEALED) ~= 0
  if kind.sealed then return is_sealed and flags == FLAG_SEALED end
  if is_sealed then return tvb:len() >= HEADER_BYTES + TAG_BYTES end
  local has_ack = bit.band(flags, FLAG_ACK) ~= 0
  return not (has_ack and kind.ack == "no") and not (kind.ack == "must" and not has_ack)
end

-- Whether a packet alone shows that its receiver speaks this protocol.
local function proves(tvb)
  local kind, flags = TYPES[tvb(0, 1):bitfield(3, 5)], tvb(1, 1):bitfield(4, 4)
  if kind.sealed then
    local length = HEADER_BYTES + bytes_of(BODIES[kind.name])
    local may_pad = kind.name == "SealedOpen" or kind.name == "SealedOpenAck"
    if tvb:len() < length or (tvb:len() > length and not may_pad) then return false end
    local bytes = tvb:bytes()
    for place = length, tvb:len() - 1 do
      if bytes:get_index(place) ~= 0 then return false end
    end
    return true
  end
  local is_checked = bit.band(flags, FLAG_SEALED) == 0 and bit.band(flags, FLAG_CHECKED) ~= 0
  return is_checked and tvb:len() >= HEADER_BYTES + 4 and crc32c(tvb) == tvb(HEADER_BYTES, 4):uint()
end

srd:register_heuristic("udp", function(tvb, pinfo, tree)
  if not srd.prefs.heuristic or not fits(tvb) then return false end
  local receiver = tostring(pinfo.dst) .. " " .. pinfo.dst_port
  if not receivers[receiver] then
    if not proves(tvb) then return false end
    receivers[receiver] = true
  end
  srd.dissector(tvb, pinfo, tree)
  return true
end)

DissectorTable.get("udp.port"):add(PORT_FIRST .. "-" .. PORT_LAST, srd)

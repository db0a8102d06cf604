-- Wireshark dissector for BCCN: datagrams on UDP, and links (NNG BUS) on TCP.
--
-- Copy it into the folder that Wireshark shows under Help, About, Folders, Personal Lua Plugins, or name it for one run:
--   tshark -X lua_script:bccn.lua -r capture.pcapng
-- It runs on Lua 5.2 and on Lua 5.4. Preferences: the UDP ports, the TCP ports of links, and the files of HMAC keys, by
-- which hmac sums are verified; crc32 sums always are, and sig sums are shown as unverified.

-- Bit operations: Lua 5.2 has a library for them, Lua 5.4 has operators that Lua 5.2 cannot parse.

local bits = bit32
if not bits then
    local function operation(text)
        return assert(load("return function(a, b) return " .. text .. " end"))()
    end
    bits = {
        band = operation("a & b"),
        bxor = operation("a ~ b"),
        bnot = operation("~a & 0xffffffff"),
        rshift = operation("(a & 0xffffffff) >> b"),
        rrotate = operation("((a & 0xffffffff) >> b | a << (32 - b)) & 0xffffffff"),
    }
end
local band, bxor, bnot, rshift, rrotate = bits.band, bits.bxor, bits.bnot, bits.rshift, bits.rrotate
local WORD = 4294967296

-- Checks: CRC-32 (IEEE 802.3), SHA-256 (FIPS 180-4), HMAC (RFC 2104).

local CRC = {}
for index = 0, 255 do
    local value = index
    for _ = 1, 8 do
        value = band(value, 1) == 1 and bxor(rshift(value, 1), 0xedb88320) or rshift(value, 1)
    end
    CRC[index] = value
end

local function crc32(text)
    local value = 0xffffffff
    for index = 1, #text do
        value = bxor(rshift(value, 8), CRC[band(bxor(value, text:byte(index)), 0xff)])
    end
    return string.format("%08x", bnot(value))
end

local ROUND_CONSTANTS = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
}

local function word_bytes(word)
    return string.char(rshift(word, 24), band(rshift(word, 16), 0xff), band(rshift(word, 8), 0xff), band(word, 0xff))
end

local function sha256(text)
    local state = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    }
    local size = #text
    text = text .. "\128" .. string.rep("\0", (55 - size) % 64) .. word_bytes(math.floor(size / 0x20000000))
        .. word_bytes((size * 8) % WORD)
    local schedule = {}
    for start = 1, #text, 64 do
        for index = 1, 16 do
            local first, second, third, fourth = text:byte(start + 4 * index - 4, start + 4 * index - 1)
            schedule[index] = ((first * 256 + second) * 256 + third) * 256 + fourth
        end
        for index = 17, 64 do
            local near, far = schedule[index - 15], schedule[index - 2]
            schedule[index] = (schedule[index - 16] + bxor(bxor(rrotate(near, 7), rrotate(near, 18)), rshift(near, 3))
                + schedule[index - 7] + bxor(bxor(rrotate(far, 17), rrotate(far, 19)), rshift(far, 10))) % WORD
        end
        local a, b, c, d, e, f, g, h = state[1], state[2], state[3], state[4], state[5], state[6], state[7], state[8]
        for index = 1, 64 do
            local mixed = (h + bxor(bxor(rrotate(e, 6), rrotate(e, 11)), rrotate(e, 25))
                + bxor(band(e, f), band(bnot(e), g)) + ROUND_CONSTANTS[index] + schedule[index]) % WORD
            local majority = bxor(bxor(band(a, b), band(a, c)), band(b, c))
            local added = (bxor(bxor(rrotate(a, 2), rrotate(a, 13)), rrotate(a, 22)) + majority) % WORD
            a, b, c, d, e, f, g, h = (mixed + added) % WORD, a, b, c, (d + mixed) % WORD, e, f, g
        end
        for index, value in ipairs({a, b, c, d, e, f, g, h}) do
            state[index] = (state[index] + value) % WORD
        end
    end
    local words = {}
    for index, word in ipairs(state) do
        words[index] = word_bytes(word)
    end
    return table.concat(words)
end

local function hmac_sha256(key, text)
    if #key > 64 then
        key = sha256(key)
    end
    key = key .. string.rep("\0", 64 - #key)
    local function padded(mask)
        return (key:gsub(".", function(char) return string.char(bxor(char:byte(), mask)) end))
    end
    return sha256(padded(0x5c) .. sha256(padded(0x36) .. text))
end

-- The first 8 bytes, as the protocol cuts it.
local function short_hmac(key, text)
    return (hmac_sha256(key, text):sub(1, 8):gsub(".", function(char) return string.format("%02x", char:byte()) end))
end

-- Fields

local bccn = Proto("bccn", "BCCN")
local STATUS = {[0] = "Bad", [1] = "Good", [2] = "Unverified"}
local FORMS = {plain = "plain", all = "all", directed = "directed"}
local f = {
    magic = ProtoField.string("bccn.magic", "Magic"),
    len = ProtoField.uint32("bccn.len", "Length of the body"),
    algo = ProtoField.string("bccn.algo", "Algorithm"),
    sum = ProtoField.string("bccn.sum", "Sum"),
    status = ProtoField.uint8("bccn.sum.status", "Sum status", base.DEC, STATUS),
    src = ProtoField.string("bccn.src", "Source"),
    host = ProtoField.string("bccn.host", "Host of the source"),
    seq = ProtoField.uint64("bccn.seq", "Sequence number"),
    chan = ProtoField.string("bccn.chan", "Channel"),
    form = ProtoField.string("bccn.form", "Form"),
    target = ProtoField.string("bccn.target", "Target"),
    payload = ProtoField.bytes("bccn.payload", "Payload"),
    text = ProtoField.string("bccn.text", "Payload as text"),
    report_version = ProtoField.string("bccn.report.version", "Version of bccnd"),
    report_interval = ProtoField.uint32("bccn.report.interval", "Interval in milliseconds"),
    report_part = ProtoField.uint32("bccn.report.part", "Part"),
    report_parts = ProtoField.uint32("bccn.report.parts", "Parts"),
    report_keys = ProtoField.string("bccn.report.keys", "Keys"),
    report_sent = ProtoField.string("bccn.report.sent", "Sent by"),
    report_first = ProtoField.uint64("bccn.report.first", "First number"),
    report_next = ProtoField.uint64("bccn.report.next", "Next number"),
    report_heard = ProtoField.string("bccn.report.heard", "Received from host"),
    report_since = ProtoField.uint64("bccn.report.since", "Since (ms after 1970)"),
    report_received = ProtoField.uint64("bccn.report.received", "Received"),
    report_lost = ProtoField.uint64("bccn.report.lost", "Lost"),
    report_late = ProtoField.uint64("bccn.report.late", "Late"),
    report_duplicate = ProtoField.uint64("bccn.report.duplicate", "Duplicate"),
    link_greeting = ProtoField.bytes("bccn.link.greeting", "Greeting of NNG BUS"),
    link_len = ProtoField.uint64("bccn.link.len", "Length of the message"),
}
bccn.fields = f

local malformed = ProtoExpert.new("bccn.malformed", "Not as the protocol has it", expert.group.MALFORMED,
    expert.severity.ERROR)
local bad_sum = ProtoExpert.new("bccn.sum.bad", "The sum does not fit the body", expert.group.CHECKSUM,
    expert.severity.ERROR)
local no_key = ProtoExpert.new("bccn.sum.no_key", "A key file cannot be read", expert.group.SECURITY,
    expert.severity.WARN)
bccn.experts = {malformed, bad_sum, no_key}

-- Preferences

bccn.prefs.udp_ports = Pref.range("UDP ports", "5400", "Ports of segments", 65535)
bccn.prefs.link_ports = Pref.range("TCP ports of links", "", "Ports of links between segments, without TLS", 65535)
bccn.prefs.key_files = Pref.string("HMAC key files", "", "Files of HMAC keys, separated by commas")

local keys, unreadable = {}, nil

local function read_keys()
    keys, unreadable = {}, nil
    for path in bccn.prefs.key_files:gmatch("[^,]+") do
        path = path:match("^%s*(.-)%s*$")
        local file = io.open(path, "rb")
        local key = file and file:read("*a")
        if file then
            file:close()
        end
        if key then
            keys[#keys + 1] = key:gsub("[\r\n]+$", "")
        else
            unreadable = path
        end
    end
end

-- A datagram

local function sum_status(algorithm, sum, body)
    if algorithm == "crc32" then
        return crc32(body) == sum and 1 or 0
    end
    if algorithm == "hmac" and #keys > 0 then
        for _, key in ipairs(keys) do
            if short_hmac(key, body) == sum then
                return 1
            end
        end
        return 0
    end
    return 2
end

-- A text whose other bytes than printable ASCII are dots: a column or field must hold nothing else.
local function printable(text)
    return (text:gsub("[^ -~]", "."))
end

-- A number of up to 64 bits from its digits; nil if it is none.
local function to_uint64(digits)
    if not digits:match("^%d+$") or #digits > 40 then
        return nil
    end
    local high, low = 0, 0
    for index = 1, #digits do
        low = low * 10 + digits:byte(index) - 48
        high = high * 10 + math.floor(low / WORD)
        low = low % WORD
        if high >= WORD then
            return nil
        end
    end
    return UInt64.new(low, math.floor(high))
end

-- One line of a report, with the fields behind its word. A name comes first, numbers behind it.
local REPORT_LINES = {
    sent = {f.report_sent, f.report_first, f.report_next},
    heard = {f.report_heard, f.report_since, f.report_received, f.report_lost, f.report_late, f.report_duplicate},
}

local function add_report_line(tree, range, line)
    local word, rest = line:match("^(%l+) (.*)$")
    local values = {}
    for value in (rest or ""):gmatch("[^ ]+") do
        values[#values + 1] = value
    end
    if word == "report" and values[1] == "1" and values[5] then
        tree:add(f.report_version, range, printable(values[2]))
        for index, field in ipairs({f.report_interval, f.report_part, f.report_parts}) do
            tree:add(field, range, tonumber(values[index + 2]) or 0)
        end
    elseif word == "keys" then
        tree:add(f.report_keys, range, printable(rest))
    elseif REPORT_LINES[word] and values[1] then
        local fields = REPORT_LINES[word]
        local item = tree:add(fields[1], range, printable(values[1]))
        for index = 2, #fields do
            local number = to_uint64(values[index] or "")
            if number then
                item:add(fields[index], range, number)
            end
        end
    end
end

local function add_report(tree, tvb, payload)
    local report = tree:add(bccn, tvb, "Report of what a host has sent and received")
    local start = 0
    for line in payload:gmatch("([^\n]*)\n") do
        add_report_line(report, tvb(start, #line), line)
        start = start + #line + 1
    end
end

-- Whether a name has 1 to `most` bytes that names may have.
local function is_name(name, most)
    return #name >= 1 and #name <= most and not name:match("[^!-~]") and not name:match("[:|]")
end

local function form_of(chan)
    if chan == "!" then
        return FORMS.all
    end
    return chan:sub(1, 1) == "!" and FORMS.directed or FORMS.plain
end

-- Adds what the body says; returns a line about it.
local function add_body(tree, tvb)
    local body = tvb:raw()
    local bar = body:find("|", 1, true)
    local src, digits, chan = (body:sub(1, (bar or 1) - 1)):match("^([^:]*):([^:]*):([^:]*)$")
    local seq = digits and to_uint64(digits)
    if not (seq and is_name(src, 128) and is_name(chan, 1024)) then
        tree:add_proto_expert_info(malformed, "The body is not <src>:<seq>:<chan>|<payload>")
        return "body that cannot be read"
    end
    tree:add(f.src, tvb(0, #src), src)
    tree:add(f.host, tvb(0, #src), src:match("^[^/]*")):set_generated()
    tree:add(f.seq, tvb(#src + 1, #digits), seq)
    local place = tvb(#src + #digits + 2, #chan)
    tree:add(f.chan, place, chan)
    local form = form_of(chan)
    tree:add(f.form, place, form):set_generated()
    if form == FORMS.directed then
        tree:add(f.target, place, chan:sub(2))
    end
    local payload = body:sub(bar + 1)
    if #payload > 0 then
        local range = tvb(bar, #payload)
        tree:add(f.payload, range)
        tree:add(f.text, range, printable(payload)):set_generated()
        if chan:match("^bccn/report/.") then
            add_report(tree, range, payload)
        end
    end
    return string.format("%s #%s %s (%d bytes)", src, digits, chan, #payload)
end

local function add_sum(tree, tvb, start, check, body)
    local algorithm, sum = check:match("^([^=]+)=(.+)$")
    if not algorithm or check:match("[^!-~]") then
        tree:add_proto_expert_info(malformed, "The check is not <algo>=<sum>")
        return ""
    end
    tree:add(f.algo, tvb(start, #algorithm), algorithm)
    local item = tree:add(f.sum, tvb(start + #algorithm + 1, #sum), sum)
    local status = sum_status(algorithm, sum, body)
    tree:add(f.status, tvb(start + #algorithm + 1, #sum), status):set_generated()
    if status == 0 then
        item:add_proto_expert_info(bad_sum)
    end
    if algorithm == "hmac" and unreadable then
        item:add_proto_expert_info(no_key, "The key file " .. unreadable .. " cannot be read")
    end
    return status == 0 and "[wrong " .. algorithm .. "] " or ""
end

-- Dissects a datagram: an envelope, and a body of version 1. Returns a line about it.
local function add_datagram(tvb, root)
    local bytes = tvb:raw()
    local tree = root:add(bccn, tvb)
    local magic, inside = bytes:match("^([!-Z\\^-~]+)%[([^%]]*)%]")
    local digits, colon, check = (inside or ""):match("^(%d+)(:?)(.*)$")
    local body_start = inside and #magic + #inside + 2
    if not digits or #magic > 32 or digits:match("^0.") or (colon == "" and check ~= "") or tonumber(digits) ~= #bytes - body_start then
        tree:add_proto_expert_info(malformed, "No envelope <magic>[<len>(:<algo>=<sum>)], or another length")
        return "envelope that cannot be read"
    end
    tree:add(f.magic, tvb(0, #magic), magic)
    tree:add(f.len, tvb(#magic + 1, #digits), tonumber(digits))
    local warning = ""
    if colon == ":" then
        warning = add_sum(tree, tvb, #magic + #digits + 2, check, bytes:sub(body_start + 1))
    end
    if magic ~= "BCCN1" then
        return warning .. magic
    end
    if body_start == #bytes then
        tree:add_proto_expert_info(malformed, "The body is empty")
        return warning .. "empty body"
    end
    local line = add_body(tree, tvb(body_start):tvb())
    tree:append_text(": " .. line)
    return warning .. line
end

function bccn.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "BCCN"
    pinfo.cols.info = add_datagram(tvb, root)
    return tvb:len()
end

local function is_datagram(tvb, pinfo, root)
    if tvb:len() < 8 or not tvb:raw(0, math.min(tvb:len(), 12)):match("^BCCN%d+%[%d") then
        return false
    end
    bccn.dissector(tvb, pinfo, root)
    return true
end

-- A link: each side begins with a greeting; then each message follows its length in eight bytes.

local links = Proto("bccn_link", "BCCN link (NNG BUS)")
local GREETING = "\0SP\0\0\x70\0\0"
local LARGEST = 131072

local function link_size(tvb, _, offset)
    if tvb:raw(offset, 8) == GREETING then
        return 8
    end
    local length = tvb(offset, 8):uint64():tonumber()
    -- What is no message is shown as a whole, up to the end of the segment.
    return length <= LARGEST and length + 8 or tvb:len() - offset
end

local function add_link_message(tvb, pinfo, root)
    pinfo.cols.protocol = "BCCN"
    local tree = root:add(links, tvb)
    if tvb:raw(0, 8) == GREETING then
        tree:add(f.link_greeting, tvb(0, 8))
        pinfo.cols.info = "Greeting of a link"
        return tvb:len()
    end
    local length = tvb(0, 8):uint64()
    tree:add(f.link_len, tvb(0, 8), length)
    if length:tonumber() ~= tvb:len() - 8 then
        tree:add_proto_expert_info(malformed, "Not a message of a link")
    elseif length:tonumber() > 0 then
        pinfo.cols.info = "Link: " .. add_datagram(tvb(8):tvb(), root)
    end
    return tvb:len()
end

function links.dissector(tvb, pinfo, root)
    dissect_tcp_pdus(tvb, root, 8, link_size, add_link_message)
    return tvb:len()
end

local function is_link(tvb, pinfo, root)
    if tvb:len() < 8 or tvb:raw(0, 8) ~= GREETING then
        return false
    end
    pinfo.conversation = links
    links.dissector(tvb, pinfo, root)
    return true
end

bccn:register_heuristic("udp", is_datagram)
links:register_heuristic("tcp", is_link)

local udp_ports, tcp_ports = DissectorTable.get("udp.port"), DissectorTable.get("tcp.port")
local known_udp, known_tcp

local function follow_preferences()
    read_keys()
    if known_udp then
        udp_ports:remove(known_udp, bccn)
    end
    if known_tcp then
        tcp_ports:remove(known_tcp, links)
    end
    known_udp, known_tcp = bccn.prefs.udp_ports, bccn.prefs.link_ports
    udp_ports:add(known_udp, bccn)
    if known_tcp ~= "" then
        tcp_ports:add(known_tcp, links)
    end
end

bccn.prefs_changed = follow_preferences
bccn.init = function()
    if not known_udp then
        follow_preferences()
    end
end

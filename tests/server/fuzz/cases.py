"""Cases of a round: connections, their requests, and the delivery of each."""

import base64
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from producer.wire.compression import COMPRESSIONS
from producer.wire.signing import SigningKey, UnsignedRequest, sign_v1, sign_v4

from . import wire_garbage as garbage

Dice = random.Random

PROJECT, LEDGER, MESSY = "fuzz", "ledger", "messy"
SHARDS = 2


@dataclass
class Request:
    """One request before signing; each part may be nonsense."""

    method: str = "GET"
    path: str = "/"
    params: list[tuple[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    sign_version: int = 1
    record: str | None = None
    #: Changes to the headers after signing; None drops one.
    after_signing: dict[str, str | None] = field(default_factory=dict)
    raw_query: str | None = None
    chunked: bool = False

    def encode(self, port: int, dice: Dice) -> bytes:
        given = {
            "x-log-apiversion": "0.6.0",
            "x-log-bodyrawsize": str(len(self.body)),
            "Host": f"{PROJECT}.127.0.0.1:{port}",
            **self.headers,
        }
        key = SigningKey(
            access_key_id="test-access-key-id", access_key_secret="test-access-key-secret", region="cn-hangzhou"
        )
        unsigned = UnsignedRequest(
            method=self.method, path=self.path, params=dict(self.params), headers=given, body=self.body
        )
        minutes = 0 if self.record or dice.random() < 0.97 else dice.choice([-20, -14, 14, 20])
        sign = sign_v1 if self.sign_version == 1 else sign_v4
        headers: dict[str, str | None] = {**sign(unsigned, key, datetime.now(UTC) + timedelta(minutes=minutes))}
        headers |= {"Transfer-Encoding": "chunked"} if self.chunked else {"Content-Length": str(len(self.body))}
        headers |= self.after_signing
        query = self.raw_query
        if query is None:
            query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in self.params)
        target = quote(self.path, safe="/%:") + (f"?{query}" if query else "")
        lines = [f"{self.method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items() if v is not None)]
        body = _in_chunks(dice, self.body) if self.chunked else self.body
        return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


def _in_chunks(dice: Dice, body: bytes) -> bytes:
    chunks, place = b"", 0
    while place < len(body):
        size = dice.choice([1, 10, 1000, 100_000])
        part = body[place : place + size]
        chunks += b"%x\r\n%s\r\n" % (len(part), part)
        place += size
    return chunks + b"0\r\n\r\n"


@dataclass
class Case:
    data: bytes
    requests: list[Request]
    delivery: str
    length: int
    intact: bool

    @property
    def records(self) -> list[str]:
        """Return the records of valid writes in the case."""
        return [request.record for request in self.requests if request.record is not None]

    def __str__(self) -> str:
        lines = [f"{request.method} {request.path[:80]} record={request.record}" for request in self.requests]
        return f"{self.delivery} of {self.length}/{len(self.data)} bytes, intact={self.intact}: {'; '.join(lines)}"


def make_cases(dice: Dice, name: str, port: int, count: int) -> list[Case]:
    cases = [_case(dice, f"{name}-{number}", port) for number in range(count)]
    if dice.random() < 0.25:
        huge = _huge(dice)
        data = huge.encode(port, dice)
        crowd = dice.choice([1, 2, 16])
        cases[:crowd] = [Case(data, [huge], dice.choice(["whole", "gone", "pieces"]), len(data), True)] * crowd
    return cases


def _case(dice: Dice, name: str, port: int) -> Case:
    count = dice.choice([1, 1, 1, 2, 5])
    requests = [_request(dice, f"{name}-{number}") for number in range(count)]
    data = b"".join(request.encode(port, dice) for request in requests)
    intact = True
    if dice.random() < 0.08:
        changed = garbage.flip(dice, data) if dice.random() < 0.7 else dice.randbytes(dice.choice([3, 300, 30_000]))
        data, intact = changed, False
    delivery = dice.choice(["whole"] * 8 + ["pieces"] * 4 + ["cut", "cut", "reset", "reset", "gone", "gone", "unread"])
    if dice.random() < 0.01:
        delivery = "stalled"
    length = len(data) if delivery in ("whole", "pieces", "gone", "unread") else dice.randrange(len(data) + 1)
    return Case(data, requests, delivery, length, intact)


def _request(dice: Dice, name: str) -> Request:
    if dice.random() < 0.3:
        return _good_write(dice, name)
    makers = (
        [_write] * 6
        + [_batch] * 2
        + [_search] * 4
        + [_pull] * 3
        + [_admin] * 3
        + [_consume] * 2
        + [_reshape, _anything]
    )
    request: Request = dice.choice(makers)(dice)
    request.sign_version = dice.choice([1, 4])
    for _ in range(dice.choice([0, 0, 0, 1, 1, 2])):
        dice.choice([_change_header, _change_header, _change_params, _change_path, _change_body, _after_signing])(
            dice, request
        )
    if request.method.upper() == "DELETE":
        # It would be a valid write: the valid records are in another project.
        request.headers["x-log-project"] = "elsewhere"
    request.chunked = request.chunked or dice.random() < 0.1
    return request


def _good_write(dice: Dice, name: str) -> Request:
    """Return a valid write of one record."""
    group = garbage.LogGroup()
    log = group.Logs.add(Time=1_700_000_000)
    log.Contents.add(Key="record", Value=name.encode())
    log.Contents.add(Key="filler", Value=dice.randbytes(dice.choice([0, 10, 1000, 100_000])))
    raw = group.SerializeToString()
    request = _put(dice, LEDGER, raw, dice.choice(COMPRESSIONS))
    request.body = garbage.compress(raw, request.headers.get("x-log-compresstype", "none"))
    request.record, request.sign_version = name, dice.choice([1, 4])
    request.chunked = dice.random() < 0.2
    if dice.random() < 0.3:
        # A key of its own makes the write new, whether the write before was stored or not.
        request.path = f"/logstores/{LEDGER}/shards/route"
        request.params = [("key", f"{dice.getrandbits(128):032x}"), ("seqid", str(dice.randrange(1, 100)))]
    return request


def _put(dice: Dice, logstore: str, raw: bytes, compression: str) -> Request:
    headers = {"Content-Type": "application/x-protobuf", "x-log-bodyrawsize": str(len(raw))}
    if compression != "none":
        headers["x-log-compresstype"] = compression
    path = f"/logstores/{logstore}" + dice.choice(["/shards/lb", "/shards/lb", ""])
    return Request("POST", path, headers=headers)


def _write(dice: Dice) -> Request:
    raw, compression = garbage.raw_body(dice), dice.choice(COMPRESSIONS)
    request = _put(dice, MESSY, raw, compression)
    request.body = garbage.compressed(dice, raw, compression)
    if dice.random() < 0.15:
        sizes = ["0", "-1", "", "x", str(len(raw) + 1), str(1 << 40), "9" * 30, "1" + "0" * 7]
        request.headers["x-log-bodyrawsize"] = dice.choice(sizes)
    if dice.random() < 0.2:
        request.path = f"/logstores/{MESSY}/shards/route"
        keys = ["0a", "ff" * 16, "", "xyz", "0" * 33, "\uff11"]
        request.params = [("key", dice.choice(keys)), ("seqid", dice.choice(["1", "2", "0", "-1", str(1 << 63), "x"]))]
    return request


def _batch(dice: Dice) -> Request:
    body = garbage.packages(dice)
    request = _put(dice, MESSY, body, "none")
    request.headers["x-log-mode"] = "batch_group"
    request.body = body
    return request


_NUMBERS = ["0", "1", "5", "99", "100", "101", "-1", "", "x", "1e3", "1.5", str(1 << 32), str((1 << 63) - 1), "9" * 25]


def _number(dice: Dice, *usual: str) -> str:
    return dice.choice([*usual] * 5 + _NUMBERS)


def _search(dice: Dice) -> Request:
    wanted = {
        "from": _number(dice, "0", "1699999999"),
        "to": _number(dice, "4294967296", "1700000001"),
        "query": garbage.query(dice) if dice.random() < 0.7 else "",
        "topic": dice.choice(["", "", "a", "é"]),
        "line": _number(dice, "10", "100"),
        "offset": _number(dice, "0", "0", "1000", "1000000"),
        "reverse": dice.choice(["true", "false", "", "x"]),
    }
    logstore = dice.choice([MESSY, LEDGER, "missing"])
    if dice.random() < 0.5:
        params = [("type", "log"), *((name, value) for name, value in wanted.items() if dice.random() < 0.95)]
        return Request("GET", f"/logstores/{logstore}", params)
    body = garbage.json_body(dice, wanted)
    headers = {"Content-Type": "application/json", "Accept-Encoding": _encoding(dice)}
    return Request("POST", f"/logstores/{logstore}/logs", headers=headers, body=body)


def _huge(dice: Dice) -> Request:
    what = dice.randrange(4)
    if what == 0:
        words = dice.choice(["a or b ", "x ", "(", '"a b" ', "not "])
        body = garbage.json.dumps({"from": 0, "to": 9, "query": words * (10_000_000 // len(words))}).encode()
        return Request("POST", f"/logstores/{MESSY}/logs", body=body)
    if what == 1:
        after: dict[str, str | None] = {"Authorization": dice.choice([None, "LOG test-access-key-id:Zm9v"])}
        request = _put(dice, MESSY, b"", "none")
        request.body, request.after_signing = bytes(10_000_000), after
        return request
    unit = dice.choice([b"\x0a\x00", b"\x0a\x02\x08\x01", b"\x32\x04\x0a\x00\x12\x00", b"\x0a\x0c\x08\x01\x12\x08"])
    raw = unit * (10_000_000 // len(unit)) if what == 2 else garbage.flip(dice, dice.randbytes(10_000_000))
    compression = dice.choice(COMPRESSIONS)
    request = _put(dice, MESSY, raw, compression)
    request.body = garbage.compress(raw, compression)
    return request


def _encoding(dice: Dice) -> str:
    return dice.choice(["lz4", "zstd", "deflate", "gzip, deflate", "", "x", "lz4;q=1, zstd"])


def _cursor(dice: Dice) -> str:
    position = dice.choice([0, 0, 1, 50, 10**17, 10**18 - 1, 10**18, -1])
    good = base64.b64encode(str(position).encode()).decode()
    return good if dice.random() < 0.8 else dice.choice(["", "x", "MA", "MTI=x", "é", good[:-1], "A" * 5000])


def _pull(dice: Dice) -> Request:
    shard = dice.choice(["0", "1", "0", "1", "2", "-1", "x", "99999999999999999999", "1.0"])
    kind = dice.choice(["log", "log", "log", "cursor", "cursor_time", "", "x"])
    params = [("type", kind), ("cursor", _cursor(dice)), ("count", _number(dice, "100", "1000", "3"))]
    if dice.random() < 0.3:
        params.append(("end_cursor", _cursor(dice)))
    if kind == "cursor":
        params = [("type", kind), ("from", dice.choice(["begin", "end", "begin", *_NUMBERS]))]
    logstore = dice.choice([MESSY, LEDGER, LEDGER, "missing"])
    headers = {"Accept-Encoding": _encoding(dice)}
    return Request("GET", f"/logstores/{logstore}/shards/{shard}", params, headers)


_NAMES = ["messy", "a-b_c.d", "-x", "", "a" * 128, "a" * 129, "é", "a/b", "..", "a b", "%", "\x00", "A", "x;y", "磁盘"]


def _admin(dice: Dice) -> Request:
    json_headers = {"Content-Type": "application/json"}
    what = dice.randrange(6)
    if what == 0:
        good = {"projectName": dice.choice([PROJECT, *_NAMES]), "description": dice.choice(_NAMES)}
        return Request("POST", "/", headers=json_headers, body=garbage.json_body(dice, good))
    if what == 1:
        name = f"made-{dice.randrange(30)}" if dice.random() < 0.7 else dice.choice(_NAMES)
        good = {
            "logstoreName": name,
            "ttl": dice.choice([1, 30, 3650, 0, -1, "7"]),
            "shardCount": dice.choice([1, 4, 256]),
        }
        return Request("POST", "/logstores", headers=json_headers, body=garbage.json_body(dice, good))
    if what == 2:
        params = [("offset", _number(dice, "0")), ("size", _number(dice, "10")), ("logstoreName", dice.choice(_NAMES))]
        return Request("GET", "/logstores", params)
    path = dice.choice(["/", f"/logstores/{MESSY}", f"/logstores/{MESSY}/shards", "/logstores/missing"])
    return Request(dice.choice(["GET", "GET", "HEAD"]), path)


def _consume(dice: Dice) -> Request:
    """Return a request for consumer groups, indexes, histograms or neighbours."""
    json_headers = {"Content-Type": "application/json"}
    groups = f"/logstores/{MESSY}/consumergroups"
    group = f"{groups}/{dice.choice(['g-1', 'g-2', *_NAMES])}"
    what = dice.randrange(6)
    if what == 0:
        good = {
            "consumerGroup": dice.choice(["g-1", "g-2", *_NAMES]),
            "timeout": dice.choice([1, 60, 0, "x"]),
            "order": True,
        }
        return Request(dice.choice(["POST", "PUT"]), groups, headers=json_headers, body=garbage.json_body(dice, good))
    if what == 1:
        params = [("type", "heartbeat"), ("consumer", dice.choice(["a", "b", *_NAMES]))]
        body = dice.choice([b"[]", b"[0, 1]", b"[-1]", b'[0, "x"]', b"{}", b"[" * 5000, b"[99999999999999999999999]"])
        return Request("POST", group, params, json_headers, body)
    if what == 2:
        params = [("type", "checkpoint"), ("consumer", "a"), ("forceSuccess", dice.choice(["true", "false", "x"]))]
        good = {"shard": dice.choice([0, 1, 77, "x"]), "checkpoint": dice.choice(["MA==", "", "?", "é"])}
        return Request("POST", group, params, json_headers, garbage.json_body(dice, good))
    if what == 3:
        return Request("GET", group, [("shard", _number(dice, "0"))])
    if what == 4:
        good = {
            "line": {"token": _NAMES},
            "keys": {name: {"type": dice.choice(["long", "text", 1])} for name in _NAMES},
        }
        body = garbage.json_body(dice, good)
        return Request(dice.choice(["POST", "PUT"]), f"/logstores/{MESSY}/index", headers=json_headers, body=body)
    kind = dice.choice(["histogram", "context_log"])
    params = [("type", kind), ("from", _number(dice, "0")), ("to", _number(dice, "9999999999")), ("pack_id", "A-1")]
    params += [("pack_meta", dice.choice(["0|0|0", "1|99|0", "x", "0|0", "0|0|99999999999999999999"]))]
    return Request("GET", f"/logstores/{MESSY}", params)


def _reshape(dice: Dice) -> Request:
    """Return a split or merge of shards, or SQL, which may be invalid."""
    if dice.random() < 0.5:
        params = [
            ("action", dice.choice(["split", "merge", "x"])),
            ("key", dice.choice(["8" + "0" * 31, "zz", "4", "f" * 40])),
        ]
        return Request("POST", f"/logstores/{MESSY}/shards/{dice.randrange(6)}", params)
    sql = [
        "select count(*)",
        "select * limit 5",
        "select",
        "select 'é' || __time__",
        "select __topic__, count(*) group by 1",
        "\x00",
        "with",
    ]
    query = f"{dice.choice(['*', 'a or b', ''])} | {dice.choice(sql)}"
    params = [("type", "log"), ("from", "0"), ("to", _number(dice, "9999999999")), ("query", query)]
    return Request("GET", f"/logstores/{MESSY}", params)


def _anything(dice: Dice) -> Request:
    method = dice.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "X", "get"])
    return Request(method, "/" + "/".join(dice.choice(_NAMES) for _ in range(dice.randrange(5))))


def _change_header(dice: Dice, request: Request) -> None:
    name = dice.choice(
        [
            *("Host", "Content-Type", "x-log-apiversion", "x-log-bodyrawsize", "x-log-compresstype", "x-log-mode"),
            *(
                "x-log-project",
                "x-acs-security-token",
                "Accept-Encoding",
                "Expect",
                "Connection",
                "x-log-date",
                "Upgrade",
            ),
            *("x-log-meta-a", "x-log-extra", "User-Agent", "Cookie"),
        ]
    )
    values = [
        *("", "x", "é", "0", "-1", "chunked", "close", "keep-alive", "100-continue", "websocket", "batch_group"),
        *("application/x-protobuf", "lz4", "zstd", "127.0.0.1", "fuzz.localhost", ".", "a" * 500, "a" * 20_000),
    ]
    request.headers[name] = dice.choice(values)


def _change_params(dice: Dice, request: Request) -> None:
    extra = (dice.choice(["key", "type", "cursor", "é", "", "query", "x" * 200]), dice.choice(_NAMES))
    request.params = dice.choice(
        [[*request.params, extra], request.params[1:], [*request.params, *request.params], [extra]]
    )
    if dice.random() < 0.2:
        request.raw_query = dice.choice(["%zz=%", "a&&&=&b", "%00=%ff", "type=log;from=0", "?" * 50, "=" * 3000])


def _change_path(dice: Dice, request: Request) -> None:
    name = dice.choice(_NAMES)
    request.path = dice.choice(
        [
            request.path + "/",
            request.path.replace(MESSY, name),
            "//" + request.path,
            request.path + "/" + name,
            "/" + name,
        ]
    )
    if request.record is None and LEDGER in request.path:
        request.path = "/"


def _change_body(dice: Dice, request: Request) -> None:
    request.body = garbage.flip(dice, request.body)


def _after_signing(dice: Dice, request: Request) -> None:
    name = dice.choice(
        [
            *("Authorization", "Content-MD5", "x-log-content-sha256", "Date", "x-log-date", "Content-Length", "Host"),
            *("Content-Type", "x-log-bodyrawsize", "x-log-signaturemethod", "Transfer-Encoding"),
        ]
    )
    value = dice.choice(
        [None, "", "x", "LOG a:b", "LOG test-access-key-id:Zm9v", "0", "5", "100000000", "chunked", "é"]
    )
    request.after_signing[name] = value

"""List HTTP/1.1 requests whose end a proxy and a server could see at different bytes."""

#: The hidden request of a smuggler; a server that responds to it was tricked.
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"

_HOST = b"Host: a\r\n"
_BODY = b"Content-Length: 4\r\n\r\nab\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
_NONE = b"0\r\n\r\n"
_LINE = b"POST / HTTP/1.1\r\n"

#: Faults of the head: the server refuses each before it reads a body.
HEADS = {
    "a length and chunks": _LINE + _HOST + b"Content-Length: 4\r\n" + _CHUNKED + _NONE,
    "chunks and a length": _LINE + _HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + _NONE,
    "a malformed line between length and chunks": _LINE + _HOST + b"Content-Length: 4\r\nx\r\n" + _CHUNKED + _NONE,
    "two lengths": _LINE + _HOST + b"Content-Length: 0\r\n" + _BODY,
    "two lengths in one header": _LINE + _HOST + b"Content-Length: 4, 0\r\n\r\nab\r\n",
    "a signed length": _LINE + _HOST + b"Content-Length: +4\r\n\r\nab\r\n",
    "a negative length": _LINE + _HOST + b"Content-Length: -4\r\n\r\nab\r\n",
    "a length with an underscore": _LINE + _HOST + b"Content-Length: 0_4\r\n\r\nab\r\n",
    "a hexadecimal length": _LINE + _HOST + b"Content-Length: 0x4\r\n\r\nab\r\n",
    "a length in other digits": _LINE + _HOST + "Content-Length: \u0664\r\n\r\nab\r\n".encode(),
    "an empty length": _LINE + _HOST + b"Content-Length:\r\n\r\n",
    "a length in two lines": _LINE + _HOST + b"Content-Length:\r\n 4\r\n\r\nab\r\n",
    "a coding in two lines": _LINE + _HOST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + _NONE,
    "a continued first header": _LINE + b" " + _HOST + _BODY,
    "a space before the colon": _LINE + _HOST + b"Transfer-Encoding : chunked\r\n" + _BODY,
    "a tab before the colon": _LINE + _HOST + b"Content-Length\t: 4\r\n\r\nab\r\n",
    "a space in a name": _LINE + _HOST + b"Content Length: 4\r\n" + _BODY,
    "no name": _LINE + _HOST + b": x\r\n" + _BODY,
    "a header without a colon": _LINE + _HOST + b"x\r\n" + _BODY,
    "NUL in a value": _LINE + _HOST + b"X: a\0b\r\n" + _BODY,
    "NUL in a name": _LINE + _HOST + b"X\0: a\r\n" + _BODY,
    "NUL in the target": b"POST /\0 HTTP/1.1\r\n" + _HOST + _BODY,
    "a bare CR in a value": _LINE + _HOST + b"X: a\rTransfer-Encoding: chunked\r\n" + _BODY,
    "a bare LF ends a header": _LINE + _HOST + b"X: a\nTransfer-Encoding: chunked\r\n\r\n" + _NONE,
    "a bare LF ends the request line": b"POST / HTTP/1.1\n" + _HOST + _BODY,
    "bare LFs end the head": b"POST / HTTP/1.1\nHost: a\nContent-Length: 0\n\n",
    "CR without LF ends the head": b"POST / HTTP/1.1\r" + _HOST + _BODY,
    "no host": _LINE + _BODY,
    "two hosts": _LINE + _HOST + b"Host: b\r\n" + _BODY,
    "another coding": _LINE + _HOST + b"Transfer-Encoding: xchunked\r\n\r\n" + _NONE,
    "identity": _LINE + _HOST + b"Transfer-Encoding: identity\r\n" + _BODY,
    "two codings": _LINE + _HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n" + _NONE,
    "chunked twice": _LINE + _HOST + b"Transfer-Encoding: chunked\r\n" + _CHUNKED + _NONE,
    "a quoted coding": _LINE + _HOST + b'Transfer-Encoding: "chunked"\r\n\r\n' + _NONE,
    "a vertical tab before the coding": _LINE + _HOST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + _NONE,
    "chunks of HTTP/1.0": b"POST / HTTP/1.0\r\n" + _HOST + _CHUNKED + _NONE,
    "an invalid version": b"POST / HTTP/1.banana\r\n" + _HOST + _BODY,
    "no version": b"POST /\r\n" + _HOST + _BODY,
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2 in lower case": b"POST / http/1.1\r\n" + _HOST + _BODY,
    "two spaces in the request line": b"POST  / HTTP/1.1\r\n" + _HOST + _BODY,
    "a space in the target": b"POST / x HTTP/1.1\r\n" + _HOST + _BODY,
    "an invalid method": b"PO(ST / HTTP/1.1\r\n" + _HOST + _BODY,
    "a space before the request line": b" POST / HTTP/1.1\r\n" + _HOST + _BODY,
    "a huge header": _LINE + _HOST + b"X: " + b"a" * 70_000 + b"\r\n" + _BODY,
    "very many headers": _LINE + _HOST + b"a:b\r\n" * 14_000 + _BODY,
}

_CHUNKS = _LINE + _HOST + _CHUNKED
#: Faults of the body, after a valid head.
BODIES = {
    "an invalid chunk size": _CHUNKS + b"x\r\n" + _NONE,
    "no chunk size": _CHUNKS + b"\r\n" + _NONE,
    "a signed chunk size": _CHUNKS + b"+1\r\na\r\n" + _NONE,
    "a negative chunk size": _CHUNKS + b"-1\r\na\r\n" + _NONE,
    "a chunk size with a prefix": _CHUNKS + b"0x1\r\na\r\n" + _NONE,
    "a chunk size with an underscore": _CHUNKS + b"0_1\r\na\r\n" + _NONE,
    "a chunk size with a space in front": _CHUNKS + b" 1\r\na\r\n" + _NONE,
    "a chunk size of more than 64 bits": _CHUNKS + b"1" * 21 + b"\r\na\r\n" + _NONE,
    "a chunk size behind a NUL": _CHUNKS + b"\0001\r\na\r\n" + _NONE,
    "a chunk that is longer than it says": _CHUNKS + b"1\r\nab\r\n" + _NONE,
    "another end of a chunk": _CHUNKS + b"1\r\naXX" + _NONE,
    "a bare LF behind a chunk": _CHUNKS + b"1\r\na\n" + _NONE,
    "a bare LF behind a chunk size": _CHUNKS + b"1\na\r\n" + _NONE,
    "a bare LF in a chunk extension": _CHUNKS + b"1;\nx\r\na\r\n" + _NONE,
    "a bare CR behind a chunk size": _CHUNKS + b"1\ra\r\n" + _NONE,
    "a trailer without a colon": _CHUNKS + b"0\r\nx\r\n\r\n",
    "a trailer with a space before the colon": _CHUNKS + b"0\r\nContent-Length : 4\r\n\r\n",
}

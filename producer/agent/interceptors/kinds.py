r"""The known kinds of the interceptor ``redact``, and their search in a text.

* ``email``: an address ``local@domain``, whose domain ends with a name of two letters or more. ``%40`` counts as ``@``.
* ``ipv4``: four numbers up to 255 between dots that are not part of a longer version such as ``1.2.3.4.5``.
* ``card``: 13 to 19 digits that begin with an issuer's prefix and end with the right check digit (Luhn), alone or
  beside other numbers. They may form up to five groups of three digits or more (the last may have fewer), with one
  blank, hyphen or dot between.
* ``bearer``: the token after ``Bearer``, and the credentials of ``Authorization``.
* ``password``: the value of a name that ends with ``password``, ``passwd``, ``passphrase``, ``passcode``, ``pwd``,
  ``secret``, ``token``, ``credentials``, or with ``key`` after ``api``, ``access``, ``account``, ``private`` and the
  like. The value is found after ``=``, ``:`` or ``=>``, in quotes of any kind (also those of JSON inside JSON), as an
  option of a command, in an XML tag, and in ``://user:password@host``. ``null``, ``true`` and ``false`` are kept.

Every search is linear: no expression tries the same characters more than a bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

#: Replaces the matches in a text by the second argument.
Redact = Callable[[str, str], str]

_EMAIL = re.compile(
    r"[\w.+-](?<![\w.+-].)[\w.+%'-]{0,254}?(?:@|%40)(?:[\w-]++\.)+?(?:xn--[\w-]+|[^\W\d_]{2,})(?![\w-]|\.\w)", re.ASCII
)
_IPV4 = re.compile(r"\d(?<![\d.]\d)(?<!\bv\d)\d{0,2}+(?:\.\d{1,3}+){3}(?!\.?\d)", re.ASCII | re.IGNORECASE)

_BETWEEN = "[ .\u00a0\u2009\u202f\u2010-\u2015-]"
#: A run of digits that may contain a card number.
_DIGITS = re.compile(rf"\d(?>(?:{_BETWEEN}?\d){{12,}})", re.ASCII)
_GROUP = re.compile(r"\d+", re.ASCII)
#: Prefixes of Mir and Mastercard, Diners, American Express, JCB, Visa, Maestro, Discover, UnionPay, Troy.
_ISSUER = re.compile(
    r"220[0-4]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720|5[0-8]|30[0-59]|3[689]|34|37|35(?:2[89]|[3-8])|4|6|81|82|9792"
)
_LEAST_DIGITS, _MOST_DIGITS, _MOST_GROUPS, _LEAST_GROUP = 13, 19, 5, 3

_CREDENTIALS = r"[\w.~+/-]++=*+"
_BEARER = re.compile(
    rf"(?i:bearer(?:\s++|%20|[:=]\s*+))(?=[\w.~+/-]*?[\dA-Z._~+/]|[\w-]{{20}})({_CREDENTIALS})"
    rf"|(?i:authorization\\*+[\"']?\s*+(?:=>|[:=])\s*+\\*+[\"']?(?:\w++\s++)?)({_CREDENTIALS})",
    re.ASCII,
)

#: Words that end a secret's name, in lower case, and the text that must precede ``key`` and ``pass``.
_WORDS = ("pass", "pwd", "secret", "token", "key", "credential", "identified")
_BEFORE = {
    "key": re.compile(r"(?:api|access|account|private|secret|shared|signing|encryption|auth|master|session)[_.-]?\Z"),
    "pass": re.compile(r"(?:(?<![a-z])|(?:db|user|root|my|ftp|smtp|login)[_-]?)\Z"),
}
#: Characters before a word that are checked.
_LOOK_BACK = 40
_AN_OPTION = re.compile(r"(?<![\w-])--?[\w-]*\Z", re.ASCII)
_NAME = (
    r"(?i:(?P<word>pass(?:word|wd|phrase|code)|pass|pwd|secret|token|key|credentials?|identified\s+by)"
    r"(?:[_-]?(?:\d{1,3}|confirm(?:ation)?|value|plain|text|hash|base))?)"
)
_QUOTED = r"(?:[bBuUrRfF]{1,2}(?=[\"']))?(?:\"(?:[^\"\\]|\\.)*+(?:\"|\Z)|'(?:[^'\\]|\\.)*+(?:'|\Z)|`[^`]*+(?:`|\Z))"
#: A value in quotes after backslashes; quotes after more backslashes are inside it.
_ESCAPED = r"(?P<quote{n}>\\+[\"'])(?>.*?(?:(?<!\\)(?P=quote{n})|\Z))"
#: A value in quotes as HTML, URLs and JSON encode them.
_MARK = r"&quot;|&\#0?39;|%22|%27|\\+u0022|\\+u0027"
_ENCODED = rf"(?P<mark{{n}}>{_MARK})(?>.*?(?:(?P=mark{{n}})|\Z))"
_BARE = r"(?!(?i:null|none|nil|true|false|undefined)(?![^\s,;&)}}\]\"'\\<]))(?![\[{{]\s*+(?:\\*+[\"'\[{{]|[\]}}]))"
_BARE += r"[^\s,;&\"'<>\\]++(?>(?:(?:\(\\*+[\"']|[\"'<>\\]++)(?![:}}\])])[^\s,;&\"'<>\\]++)*)"


def _value(n: int) -> str:
    return f"(?:{_QUOTED}|{_ESCAPED.format(n=n)}|{_ENCODED.format(n=n)}|{_BARE.format()})"


_SECRET = re.compile(
    rf"{_NAME}(?:(?:\s[^<>]{{0,200}}+)?>(?P<tag>[^<]++)(?=</)"
    rf"|(?:\\*+[\"'`]|{_MARK})?\]?\s*+(?:=>|:=|->|==?|:|%3[ADad])\s*+(?P<pair>{_value(1)})"
    rf"|\s++(?P<stated>{_QUOTED})|\s++(?!-)(?P<option>{_value(2)}))",
    re.DOTALL | re.ASCII,
)
_A_TAG = re.compile(r"<[\w:.-]*\Z", re.ASCII)
_URL = re.compile(r"://[^\s/:@\"'<>]*+:(?P<value>[^\s/@\"'<>]++)(?=@)")


def _emails(text: str, replacement: str) -> str:
    return _EMAIL.sub(lambda _: replacement, text) if "@" in text or "%40" in text else text


def _addresses(text: str, replacement: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        return replacement if all(int(number) <= 255 for number in found[0].split(".")) else found[0]

    return _IPV4.sub(replaced, text)


def _cards(text: str, replacement: str) -> str:
    return _DIGITS.sub(lambda found: _without_cards(found[0], replacement), text)


def _without_cards(digits: str, replacement: str) -> str:
    """Return a run of digits in groups, with cards replaced."""
    parts, at = [], 0
    for start, end in _joined(_spans_of_cards(digits)):
        parts += [digits[at:start], replacement]
        at = end
    return "".join([*parts, digits[at:]])


def _spans_of_cards(digits: str) -> Iterator[tuple[int, int]]:
    groups = [found.span() for found in _GROUP.finditer(digits)]
    for first, (start, _) in enumerate(groups):
        size = 0
        for begin, end in groups[first : first + _MOST_GROUPS]:
            size += end - begin
            if size > _MOST_DIGITS:
                break
            if size >= _LEAST_DIGITS and _is_card("".join(filter(str.isdigit, digits[start:end]))):
                yield start, end
            if end - begin < _LEAST_GROUP:
                break


def _joined(spans: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order; overlapping ones are merged."""
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _is_card(digits: str) -> bool:
    """Return True if an issuer uses the prefix and the last digit is the check digit (Luhn)."""
    if _ISSUER.match(digits) is None:
        return False
    numbers = [int(digit) for digit in reversed(digits)]
    return (sum(numbers[0::2]) + sum(sum(divmod(2 * digit, 10)) for digit in numbers[1::2])) % 10 == 0


def _may_authorize(text: str) -> bool:
    small = text.lower()
    return "bearer" in small or "authorization" in small


def _passwords(text: str, replacement: str) -> str:
    if "://" in text and "@" in text:
        text = _urls(text, replacement)
    small = text.lower()
    if len(small) != len(text):  # some letters become several in lower case
        small = "".join(sign.lower() if sign.isascii() else sign for sign in text)
    starts = sorted({start for word in _WORDS if word in small for start in _places(small, word)})
    parts, at = [], 0
    for start in starts:
        if start >= at and (span := _secret_at(text, small, start)) is not None:
            parts += [text[at : span[0]], replacement]
            at = span[1]
    return "".join([*parts, text[at:]]) if parts else text


def _places(small: str, word: str) -> Iterator[int]:
    start = small.find(word)
    while start >= 0:
        yield start
        start = small.find(word, start + 1)


def _secret_at(text: str, small: str, start: int) -> tuple[int, int] | None:
    """Return the span of a secret after a word; None if the name is not that of a secret."""
    found = _SECRET.match(text, start)
    if found is None:
        return None
    word, before = found["word"].lower(), small[max(0, start - _LOOK_BACK) : start]
    if word in _BEFORE and _BEFORE[word].search(before) is None:
        return None
    if found["tag"] is not None:
        return found.span("tag") if _A_TAG.search(before) else None
    if found["pair"] is not None:
        return found.span("pair")
    if _AN_OPTION.search(before) is not None or (found["stated"] is not None and word.startswith(("p", "i"))):
        return found.span("stated" if found["stated"] is not None else "option")
    return None


def _of_groups(pattern: re.Pattern[str]) -> Redact:
    """Return a function that replaces the longest matched group, which has the whole value."""

    def redacted(text: str, replacement: str) -> str:
        def replaced(found: re.Match[str]) -> str:
            start, end = max(
                (found.span(name) for name in (found.re.groupindex or range(1, found.re.groups + 1))),
                key=lambda span: span[1] - span[0],
            )
            return found.string[found.start() : start] + replacement + found.string[end : found.end()]

        return pattern.sub(replaced, text)

    return redacted


_bearers = _of_groups(_BEARER)
_urls = _of_groups(_URL)

KINDS: dict[str, Redact] = {
    "email": _emails,
    "ipv4": _addresses,
    "card": _cards,
    "bearer": lambda text, replacement: _bearers(text, replacement) if _may_authorize(text) else text,
    "password": _passwords,
}

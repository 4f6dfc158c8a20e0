import fnmatch
import random
import time

import pytest

from producer.server.errors import ApiError
from producer.server.limits import Limits
from producer.server.operations.query import compile_query
from producer.server.operations.query_tokens import split_query

LOG = [
    ("__topic__", "web"),
    ("__source__", "host-1"),
    ("__tag__:pod", "p-9"),
    ("level", "ERROR"),
    ("path", "/api/users?id=7"),
    ("ip", "10.0.0.1"),
    ("status", "404"),
    ("latency", "1.5"),
    ("说明", "磁盘已满"),
    ("raw", "a\ufffd"),
    ("spaces", "one\u3000two\xa0\xa0drei"),
    ("empty", ""),
    ("root", "/"),
    ("instance_id", 'nginx"01"'),
]


@pytest.mark.parametrize(
    "query",
    [
        *("", "  ", "*", "error", "ERROR", "Err*", "users", "10.0.0.1", '"10.0.0.1"', '"/api/users"', "web", "host-1"),
        *(
            "error users",
            "error and users",
            "nothing or error",
            "not nothing",
            "error not nothing",
            "error AND NOT nothing",
        ),
        *(
            "level: error",
            "level:ERR*",
            "level : ERROR",
            '"level": error',
            "level: *",
            "path: api",
            'path: "users?id=7"',
        ),
        *(
            "__topic__: web",
            "__source__: host-1",
            '"__tag__:pod": *',
            '"__tag__:pod": p-9',
            "磁盘",
            "说明: 已满",
            '"two drei"',
            '#"two drei"',
            'spaces: #"two drei"',
            "spaces: one",
        ),
        *(
            "status > 403",
            "status>=404 and status<=404",
            "status = 404",
            "latency < 2",
            "latency in [1.5 2]",
        ),
        *("status in [200 404]", "status IN (403, 405)", "latency in [1.5 2)", '"status" > -1e3', "not status > 404"),
        # Syntax of the service's own document beyond that.
        *(
            'root: "/"',
            'not root: ""',
            'not path: "/"',
            'empty: ""',
            'not level: ""',
            'not nowhere: ""',
            r"instance_id: nginx\"01\"",
            r'"nginx\"01\""',
        ),
        *("__tag__:pod:p-9", "__tag__ : pod : *", '__tag__:"pod": p-9 error', "not __tag__:pod > 9"),
        *("source: host-1", "source:host*", '"max" or error', "level: max or error", "empty:* not max > 3"),
        *("e?ror", "E*R", "api/us*s", "path: /a*", "磁*满", "us*"),
        *("(error or x) and (users or y)", "not (x or y)", "x or error users", '"and" or error', "not not error"),
    ],
)
def test_a_query_that_fits_matches(query: str) -> None:
    """Words match whole tokens without regard to case, keys restrict them, and operators combine."""
    assert compile_query(query, Limits())(LOG)


@pytest.mark.parametrize(
    "query",
    [
        *(
            "err",
            "rror",
            "10.0",
            '"users api"',
            "raw: a",
            "nothing",
            "error nothing",
            "not error",
            "level: users",
            "missing: *",
        ),
        *(
            *(
                "ip: error",
                'level: ""',
                'nowhere: ""',
                '"source": host-1',
                "source: error",
                "__tag__:pod:x",
                "__tag__:x:p-9",
            ),
            *("status > 404", "status in (404 500]", "level > 3", "missing = 0", "latency = 1", "err?", "e*x", "磁?x"),
            "nothing or neither",
            "error and (x or y)",
            "error users not web",
            '"err*"',
            '"="',
            "x or error nothing",
        ),
    ],
)
def test_a_query_that_does_not_fit_matches_nothing(query: str) -> None:
    """A part of a token, another key, or a missing word does not match."""
    assert not compile_query(query, Limits())(LOG)


@pytest.mark.parametrize(
    "query",
    [
        "(",
        ")",
        "a)",
        "(a",
        "or",
        "a or",
        "not",
        "a: ",
        "a:(",
        ":",
        '"open',
        "a | select 1",
        *(
            "level > high",
            "status >",
            "> 3",
            "a=b",
            "status in [1 x]",
            "status in [1 2",
            "(a b) > 3",
            "level :> 3",
            "a*" * 21,
        ),
        *(
            "error limit 10",
            "sort status",
            "max",
            "group by status",
            'error ""',
            "status in 400 500",
            "__tag__:pod:p:9",
        ),
        *("status > nan", "status < inf", "status > 1_0", "status in [\uff11 2]", r'a\"b" c'),
        *("status != 404", "a && b", "! a", "path ~ api", "a ^ 2"),
        "(" * 60 + "a",
        "not " * 60,
    ],
)
def test_a_query_that_cannot_be_read_is_refused(query: str) -> None:
    """An invalid query is ParameterInvalid, however deep it is nested."""
    with pytest.raises(ApiError, match="ParameterInvalid"):
        compile_query(query, Limits())


@pytest.mark.parametrize(
    ("query", "advice"),
    [
        ("status between 400 and 500", "write 'key in [1 100]'"),
        ("error status NOT BETWEEN 1 AND 2", "write 'key in [1 100]'"),
        ('day between "2024-01-01" and "2024-01-31"', "write 'key in [1 100]'"),
        ("status:[400 TO 500]", "write 'key in [1 100]'"),
        ("status: {400 TO *}", "write 'key in [1 100]'"),
        ("status:[400,500]", "write 'key in [1 100]'"),
        ("status:[400 500]", "write 'key in [1 100]'"),
        ("status in 400 500", "write 'key in [1 100]'"),
        ("status in (400, 404, 500)", "'key: a or key: b'"),
        ("level in ('ERROR', 'WARN')", "write 'key: a or key: b'"),
        ('level in ("ERROR", "WARN")', "write 'key: a or key: b'"),
        ("status in (404)", "'key: a or key: b'"),
        ("*:*", "write '*' for all logs"),
        ("*: error", "'*' is not a field"),
        ("le*: error", "'le*' is not a field"),
        ("status: >= 3", "write 'key >= 3'"),
        ("status:>3", "write 'key > 3'"),
        ("level: (error or warn)", "write 'key: a or key: b'"),
        ("status == 404", "write 'key = 3'"),
        ("status <> 404", "write 'not key = 3'"),
        ("status != 404", "'!' is not an operator"),
        ("status!=404", "write 'not key = 3'"),
        ("status => 3", "there are < <= > >= ="),
        ("level = ERROR", "write 'key: word'"),
        ("status > 5 and", "it ends with 'and'"),
        ("status > 5 or", "it ends with 'or'"),
        ("NOT", "it ends with 'NOT'"),
        ("level:", "it ends with ':'"),
        ("status > 5 and < 10", "no field precedes '<'"),
        ("error or and level", "nothing precedes 'and'"),
        ("error)", "')' has no matching '('"),
        ("-error", "write 'not error'"),
        ("web !error", "write 'not error'"),
        ("+error web", "write words side by side"),
        ("path like '/api%'", "write 'key: word', or 'key: begin*'"),
        ('path contains "api"', "write 'key: word', or 'key: begin*'"),
        ("_exists_: level", "write 'key: *'"),
        ("eror~", "write 'begin*'"),
        ("error^2 web", "write 'begin*'"),
        ("error || web", "write or"),
        ("error && web", "use and, or, not"),
        ("select * from log", "write '* | select"),
        ("SELECT count(*) FROM log", "write '* | select"),
        ("where status > 3", "without 'where'"),
        ("error order by status", "put it into quotation marks"),
    ],
)
def test_syntax_of_other_languages_is_refused_with_the_syntax_to_use_instead_of_an_empty_answer(
    query: str, advice: str
) -> None:
    """Syntax of other languages is refused with the syntax to use, instead of an empty answer."""
    with pytest.raises(ApiError) as caught:
        compile_query(query, Limits())
    assert caught.value.code == "ParameterInvalid"
    assert advice in caught.value.message


@pytest.mark.parametrize(
    "query",
    [
        *("between 1 or 5", "the gap between a and b", '"between" 1 and 2', "key: between and 2", "where it failed"),
        *("x: -5", "x > -5", "-5", '"-error"', "select failed", "matches nothing", "like a", "a: [b]", "in the end"),
        *("x: *", "*x", "x: a*", 'path: "a~"', "a ~b", '"a" and "b"', "to 5", "[1"),
    ],
)
def test_words_that_only_look_like_another_languages_syntax_are_words(query: str) -> None:
    """Words that only look like another language's syntax are words."""
    compile_query(query, Limits())


@pytest.mark.parametrize("word", ["a*" * 20 + "b", "磁" + "a*" * 20 + "b", "磁*" * 20 + "x", "*a" * 20 + "?b"])
def test_no_word_makes_a_text_slow(word: str) -> None:
    """A word of many wildcards scans a long text once, without backtracking."""
    matches = compile_query(word, Limits())
    started = time.thread_time()
    for text in ("a" * 50_000, "磁" * 50_000, "a" * 50_000 + "c"):
        assert not matches([("message", text)])
    assert time.thread_time() - started < 5


def test_a_word_with_wildcards_is_short() -> None:
    """The longest word with wildcards takes less than a second for a text of 1 MB."""
    with pytest.raises(ApiError, match=r"a word with \* or \? has 257 characters: at most 256 are allowed"):
        compile_query("*" + "a" * 256, Limits())
    matches, started = compile_query("*" + "a" * 254 + "b", Limits()), time.thread_time()
    assert not matches([("message", "a" * 1_000_000)])
    assert time.thread_time() - started < 5


def test_wildcards_match_the_tokens_that_a_shell_pattern_matches() -> None:
    """Wildcards match the tokens that a shell pattern matches."""
    dice = random.Random(1)
    for _ in range(3000):
        token = "".join(dice.choices("ab", k=dice.randrange(1, 7)))
        word = "".join(dice.choices("ab*?", k=dice.randrange(1, 6)))
        if set(word) != {"*"} and set(word) & {"*", "?"}:
            found = compile_query(f"key: {word}", Limits())([("key", f"x {token} y")])
            expected = any(fnmatch.fnmatchcase(one, word) for one in (token, "x", "y"))
            assert found == expected, (word, token)


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("error", ("error", None)),
        ("* | SELECT 1", ("* ", "SELECT 1")),
        ("\"a|b\" | select '|' ", ('"a|b" ', "select '|'")),
        ("|x", ("", "x")),
        ('"open | x', ('"open | x', None)),
        (r"""a\"b | select '"' """, (r"a\"b ", """select '"'""")),
    ],
)
def test_a_query_ends_at_the_first_pipe_outside_quotation_marks(query: str, parts: tuple[str, str | None]) -> None:
    """The text after the first pipe is not a keyword; a pipe in quotation marks is an ordinary character."""
    assert split_query(query) == parts

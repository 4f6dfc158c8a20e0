from __future__ import annotations

import tomllib

from producer.agent.config.toml_lines import lines_of

TEXT = '''\
# a comment = with
[agent]
name = "web" # [not.a.table]
"a key".'b' . c = 1

[[sources.r1.interceptors]]
type = "host"
[[sources.r1.interceptors]]
type = """
[no.table]
key = "no key" \\"""
""""
[sources.r1.interceptors.more]
list = [
  "x = 1", # ]
  { y = "]" },
]
after = \'\'\'
z = 'it''\'\'\'
last = true'''


def test_the_line_of_each_table_and_key_is_found() -> None:
    """Tables, arrays of tables, dotted and quoted keys get their lines; strings, comments and lists have no keys."""
    tomllib.loads(TEXT)
    interceptors = ("sources", "r1", "interceptors")
    assert lines_of(TEXT) == {
        ("agent",): 2,
        ("agent", "name"): 3,
        ("agent", "a key"): 4,
        ("agent", "a key", "b"): 4,
        ("agent", "a key", "b", "c"): 4,
        interceptors: 6,
        (*interceptors, 0): 6,
        (*interceptors, 0, "type"): 7,
        (*interceptors, 1): 8,
        (*interceptors, 1, "type"): 9,
        (*interceptors, 1, "more"): 13,
        (*interceptors, 1, "more", "list"): 14,
        (*interceptors, 1, "more", "after"): 18,
        (*interceptors, 1, "more", "last"): 20,
    }

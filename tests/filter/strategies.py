"""Random expressions: text by the grammar, with every quirk of it, over a handful of properties."""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c", "price", "T_1", "$x", "Not_", "inx"])
STRINGS = st.sampled_from(
    ["", "x", "abc", "true", "TRUE", "false", "5", "5.5", "-5", "it's", "日本", "a b", "05", "1e3", "2147483648"]
) | st.text(max_size=6)
INTEGERS = st.sampled_from([0, 1, 2, 5, 10, 2**31 - 1, 2**31, 2**53, 2**63 - 1]) | st.integers(0, 20)
FLOATS = st.sampled_from(["5.5", ".5", "5.", "1e3", "5.0", "1E-3", "9007199254740993.0", "1e308", "4.9e-324"])
VALUES = st.sampled_from(
    [
        "5",
        "5.5",
        " 5",
        "5 ",
        "+5",
        "-5",
        "05",
        "0",
        "-0",
        "0.0",
        "-0.0",
        "1e3",
        "1E+3",
        "0x10",
        "0x1p4",
        "0X.8P1",
        "5L",
        "5f",
        "5d",
        "5.5D",
        "NaN",
        "-NaN",
        "Infinity",
        "-Infinity",
        "true\n    ",
        "True",
        "FALSE",
        "TRUE",
        "x",
        "abc",
        "it's",
        "٥",
        "٥٥",
        "５",
        "𝟓",
        "2147483647",
        "2147483648",
        "-2147483648",
        "-2147483649",
        "9223372036854775807\n    ",
        "9223372036854775808",
        "9007199254740993",
        ".",
        "..",
        "+",
        "-",
        ".5",
        "5.",
        "1e",
        "1e+",
        "e5",
        "0x",
        "0xp1",
        "1__0",
        "1,5",
        "1e400",
        "-1e400",
        "1e-400",
        "日本",
        "''\n    ",
        "0.000001",
        "123456789012345678901234567890",
        "0.1",
        "0.30000000000000004",
        "1e22",
        "1e23",
        "8.98846567431158e307",
    ]
) | st.text(max_size=4)
PROPERTIES = st.dictionaries(NAMES, VALUES, max_size=6).map(
    lambda pairs: {
        name: value
        for name, value in pairs.items()
        if value and "\x01" not in value and "\x02" not in value and value.isprintable()
    }
)

SPACE = st.sampled_from([" ", "  ", "\n", "\t", " /* c */ ", " -- c\n"])


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


LITERALS = st.one_of(
    STRINGS.map(quoted),
    INTEGERS.map(str),
    INTEGERS.filter(bool).map(lambda value: f"{value}L"),
    FLOATS,
    st.sampled_from(["TRUE", "false", "NULL"]),
)
OPERANDS = NAMES | NAMES | LITERALS


def wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions around *inner* ones."""
    lists = st.lists(STRINGS.map(quoted), min_size=1, max_size=7).map(", ".join)
    negation = st.sampled_from(["", "NOT "])
    return st.one_of(
        st.builds("({})".format, inner),
        st.builds("{} {}".format, st.sampled_from(["NOT", "-", "+", "not"]), inner),
        st.builds("{} {} {}".format, inner, st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "AND", "OR"]), inner),
        st.builds("{} {} {}".format, NAMES, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), OPERANDS),
        st.builds("{} IS {}NULL".format, inner, negation),
        st.builds(
            "{} {}{} {}".format,
            NAMES | inner,
            negation,
            st.sampled_from(["CONTAINS", "startswith", "ENDSWITH"]),
            STRINGS.map(quoted),
        ),
        st.builds("{} {}IN ({})".format, NAMES, negation, lists),
        st.builds("{} {}BETWEEN {} AND {}".format, OPERANDS, negation, OPERANDS, OPERANDS),
        st.builds("{}{}{} = {}".format, NAMES, SPACE, SPACE, OPERANDS),
    )


EXPRESSIONS = st.recursive(OPERANDS, wider, max_leaves=8)
SOUP = st.lists(
    st.sampled_from(
        [
            "(",
            ")",
            ",",
            "+",
            "-",
            "=",
            "<>",
            "<",
            "<=",
            ">",
            ">=",
            "a",
            "b",
            "5",
            "5.5",
            "1L",
            "0",
            "07",
            "'x'",
            "''",
            "'",
            "--",
            "/*",
            "*/",
            "NOT",
            "AND",
            "OR",
            "BETWEEN",
            "IN",
            "TRUE",
            "FALSE",
            "NULL",
            "IS",
            "CONTAINS",
            "STARTSWITH",
            "ENDSWITH",
            "!=",
            "%",
            "#",
            ".",
            "1e",
            "'it''s'",
        ]
    ),
    max_size=10,
).map(" ".join)

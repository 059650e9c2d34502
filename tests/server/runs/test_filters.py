from __future__ import annotations

import pytest

from windlass.core.errors import InvalidInput
from windlass.server.runs.filters import MAX_CLAUSES, Clause, Value, parse, split_key


def test_conditions_are_read_as_people_write_them() -> None:
    assert parse("metrics.loss < 0.3 and params.lr = 0.1") == [
        Clause("metrics", "loss", "<", (Value("0.3"),)),
        Clause("params", "lr", "=", (Value("0.1"),)),
    ]
    assert parse("") == parse("  ") == []


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("metrics.`a key` >= -1e-3", Clause("metrics", "a key", ">=", (Value("-1e-3"),))),
        ('tags."mlflow.user" LIKE \'%a\'',
         Clause("tags", "mlflow.user", "like", (Value("%a", True),))),
        ("metrics.val/acc!=3", Clause("metrics", "val/acc", "!=", (Value("3"),))),
        ("status IN ('a', b)", Clause("", "status", "in", (Value("a", True), Value("b")))),
        ("name NOT IN (x)", Clause("", "name", "not in", (Value("x"),))),
        ("params.size='3'", Clause("params", "size", "=", (Value("3", True),))),
    ],
)  # fmt: skip
def test_one_condition(text: str, clause: Clause) -> None:
    assert parse(text) == [clause]


def test_a_number_in_quotes_is_text() -> None:
    [quoted], [bare] = parse("a = '3'"), parse("a = 3")
    assert (quoted.value.number, bare.value.number) == (None, 3.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("metrics.loss", "is missing at the end"),
        ("a = ", "a value is missing"),
        ("a = 1 or b = 2", "at 7: and (found 'or')"),
        ("a ! 3", "not understood"),
        ("(a = 1)", "a name"),
        ("a in (1 2)", ", or )"),
        ("a in ()", "a value"),
        ("a = 'open", "not understood"),
        ("metrics.'x' = 1", "a key"),
        (" and ".join(["a = 1"] * (MAX_CLAUSES + 1)), "more than"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match="^filter: ") as caught:
        parse(text)
    assert words in caught.value.message


def test_a_key_may_hold_dots() -> None:
    assert split_key("params.model.layers") == ("params", "model.layers")
    assert split_key("started") == ("", "started")
    assert split_key('metrics."a b"') == ("metrics", "a b")

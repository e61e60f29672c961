"""Ids by names and by their beginnings."""

from __future__ import annotations

import pytest

from dethpc.client.names import Candidate, choose, find
from dethpc.errors import NotFound, Refused

ROWS = [
    Candidate("1", "digits", "COMPLETED since May"),
    Candidate("2", "digits", "RUNNING since June"),
    Candidate("3", "letters"),
    Candidate("4", "1"),
    Candidate("abcd1", "", "trial 7"),
    Candidate("abcd2", "", "trial 8"),
]


def test_an_id_counts_before_a_name_and_a_name_before_nothing() -> None:
    assert (choose("thing", "1", ROWS), choose("thing", "letters", ROWS)) == ("1", "3")


def test_candidates_are_listed_with_what_tells_them_apart() -> None:
    message = r"2 things are called 'digits'; give an id: 1 \(digits, COMPLETED since May\), 2 \(digits, RUNNING since June\)$"
    with pytest.raises(Refused, match=message):
        choose("thing", "digits", ROWS)
    many = [Candidate(str(n), "x") for n in range(12)]
    with pytest.raises(Refused, match=r"9 \(x\), and 2 more$"):
        choose("thing", "x", many)


def test_the_beginning_of_an_id_suffices_where_it_is_long_enough() -> None:
    assert choose("thing", "abcd1", ROWS, beginnings=True) == "abcd1"
    with pytest.raises(Refused, match=r"give an id: abcd1 \(trial 7\), abcd2 \(trial 8\)"):
        choose("thing", "abcd", ROWS, beginnings=True)
    for text, beginnings in (("abc", True), ("abcd", False)):
        with pytest.raises(NotFound):
            choose("thing", text, ROWS, beginnings=beginnings)


def test_names_like_it_are_listed_where_there_is_none() -> None:
    with pytest.raises(
        NotFound, match=r"there is no thing 'leters', but there is letters \(id 3\); det thing list shows them"
    ):
        choose("thing", "leters", ROWS)
    many = [Candidate(str(n), f"model {n}") for n in range(9)]
    with pytest.raises(NotFound, match="there is no thing 'zebra'; det thing list shows them"):
        choose("thing", "zebra", many)
    with pytest.raises(
        NotFound, match=r"there is no thing 'zebra', but there are model 0 \(id 0\), model 1 \(id 1\); det things list"
    ):
        choose("thing", "zebra", many[:2], command="det things list")


def test_a_noun_that_is_called_by_name_takes_its_id_too() -> None:
    rows = [{"id": 1, "name": "2"}, {"id": 2, "name": "vision"}, {"id": 3, "name": "vision", "workspaceName": "Lab"}]
    assert find("thing", "2", rows)["id"] == 1
    assert find("thing", "3", rows)["id"] == 3
    with pytest.raises(Refused, match=r"give an id: 2 \(vision\), 3 \(vision, Lab\)"):
        find("thing", "vision", rows)


def test_a_name_that_is_a_number_counts_before_the_id() -> None:
    rows = [{"id": 3, "username": "grace"}, {"id": 6, "username": "3"}]
    assert find("user", "3", rows, name="username")["id"] == 6
    assert find("user", "6", rows, name="username")["username"] == "3"

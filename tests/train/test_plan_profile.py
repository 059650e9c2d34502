"""Profiles of both forms: what is read, and what is refused with the line and field named."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from windlass.core.errors import InvalidInput
from windlass.train.planning.links import parse_link
from windlass.train.planning.profile import BatchTimes, BlockCost, Profile, read_profile
from windlass.train.planning.textform import parse


def node(name: str, layer: str = "Linear", **numbers: object) -> str:
    values = {
        "forward_compute_time": 1.0, "backward_compute_time": 2.0, "activation_size": 100.0,
        "parameter_size": 40.0, **numbers,
    }  # fmt: skip
    return f"{name} -- {layer} -- " + ", ".join(f"{key}={value}" for key, value in values.items())


CHAIN = "\n".join([node("node1", "Input"), node("node2"), node("node3"),
                   "\tnode1 -- node2", "\tnode2 -- node3"])  # fmt: skip


def test_nodes_come_in_any_order_and_inputs_are_dropped() -> None:
    lines = CHAIN.splitlines()
    for seed in range(5):
        mixed = random.Random(seed).sample(lines, len(lines))
        found = parse("\n".join(mixed))
        assert [block.name for block in found.blocks] == ["node2 Linear", "node3 Linear"]
        assert found.edges == ((0, 1),)
        assert found.input_bytes == 100 and found.batch == 64


def test_numbers_decide_the_order_of_what_could_come_next() -> None:
    nodes = [node(f"node{at}") for at in (11, 2, 10, 1)]
    edges = ["\tnode1 -- node2", "\tnode1 -- node10", "\tnode2 -- node11", "\tnode10 -- node11"]
    found = parse("\n".join(nodes + edges))
    assert [block.name.split()[0] for block in found.blocks] == [
        "node1", "node2", "node10", "node11",
    ]  # fmt: skip
    assert found.edges == ((0, 1), (0, 2), (1, 3), (2, 3))


def test_the_rest_of_the_published_form_is_read() -> None:
    """Several results of a node as a list, a stage behind the numbers, odd words in a layer."""
    text = "\n".join(
        [
            node("node1", "LSTM(1, 2) -- two", activation_size="[4.0; 8.0]") + " -- stage_id=0",
            node("node2", forward_compute_time="1e-3"),
            "\tnode1 -- node2",
            "",
            "\tnode1 -- node2",
        ]
    )
    found = parse(text, batch=32)
    assert found.blocks[0].activation_bytes == 12 and found.blocks[1].forward_ms == 0.001
    assert found.blocks[0].name == "node1 LSTM(1, 2) -- two"
    assert found.edges == ((0, 1),) and found.batch == 32


def test_an_input_in_the_middle_is_a_node_like_any_other() -> None:
    text = "\n".join([node("node1"), node("node2", "InputProjection"), "\tnode1 -- node2"])
    assert len(parse(text).blocks) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (node("node9", forward_compute_time="fast"), "line 6: forward_compute_time: .*'fast'"),
        (node("node9", backward_compute_time=-1), "line 6: backward_compute_time: .*'-1'"),
        (node("node9", activation_size="nan"), "line 6: activation_size: .*'nan'"),
        (node("node9", parameter_size="inf"), "line 6: parameter_size: .*'inf'"),
        (node("node9", parameter_size="1_000"), "line 6: parameter_size: .*'1_000'"),
        (node("node9", parameter_size="1e400"), "line 6: parameter_size: .*'1e400'"),
        (node("node9", activation_size="[1; x]"), "line 6: activation_size: .*'x'"),
        (node("node9", colour=1), "line 6: 'colour': one of forward_compute_time"),
        (node("node2"), "line 6: node2 is there twice"),
        (node("node9").replace(", parameter_size=40.0", ""), "line 6: parameter_size is missing"),
        (node("node9") + " -- other=1", "line 6: stage_id=N or nothing.*'other=1'"),
        ("hello", "line 6: neither a node nor an edge"),
        ("\tnode1 -- node7", "line 6: there is no node 'node7'"),
        ("\tnode3 -- node2", "a cycle: node2 → node3 → node2"),
        ("\tnode3 -- node3", "a cycle: node3 → node3"),
        (node("node9"), "no edge leads from node1 to node9"),
    ],
)
def test_a_bad_line_is_named(line: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        parse(f"{CHAIN}\n{line}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("\n \n", "it is empty"),
        ("\tnode1 -- node2\n", "there is no node 'node1'"),
        (node("node1", "Input"), "there is no node beside node1"),
        ("[1, 2]", "windlass_profile"),
        ("{}", "windlass_profile"),
        ("{", "it is not JSON"),
        (
            '{"windlass_profile": 1, "batch": 0, "blocks": []}',
            "batch: .*greater than or equal to 1",
        ),
        ('{"windlass_profile": 1, "batch": 8, "blocks": []}', "blocks: .*at least 1"),
        ('{"windlass_profile": 1, "batch": "8", "blocks": []}', "batch: .*integer.*'8'"),
        ('{"windlass_profile": 1, "batch": 8, "blocks": [{}], "more": 1}', "found"),
    ],
)
def test_a_bad_file_is_refused_in_words(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "profile"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=words):
        read_profile(path)


def test_what_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        read_profile(tmp_path / "image")
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        read_profile(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_profile(tmp_path)


A_PROFILE = Profile(
    64,
    (BlockCost("a", 1.0, 2.0, 100, 10, 50), BlockCost("b", 4.0, 8.0, 100, 10, 50)),
    ((0, 1),),
    2.0,
    (BatchTimes(16, (0.7, 1.0), (0.8, 2.0)),),
    7,
)


def test_a_profile_of_ours_comes_back_as_it_was(tmp_path: Path) -> None:
    assert read_profile(A_PROFILE.save(tmp_path / "p.json")) == A_PROFILE


def test_edges_that_are_left_out_make_a_chain(tmp_path: Path) -> None:
    data = A_PROFILE.to_json()
    del data["edges"]
    (tmp_path / "p.json").write_text(json.dumps(data))
    assert read_profile(tmp_path / "p.json").edges == ((0, 1),)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edges": [[1, 0]]}, r"edges\[0\]: from a block to a later one.*\[1, 0\]"),
        ({"edges": [[0, 2]]}, r"edges\[0\]"),
        ({"edges": []}, "no edge leads from 'a' to 'b'"),
        ({"others": [{"batch": 1, "forward_ms": [1.0], "backward_ms": []}]}, "one time for each"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(
    change: dict[str, object], words: str, tmp_path: Path
) -> None:
    (tmp_path / "p.json").write_text(json.dumps({**A_PROFILE.to_json(), **change}))
    with pytest.raises(InvalidInput, match=words):
        read_profile(tmp_path / "p.json")


def test_times_at_another_batch_lie_on_the_line_through_two() -> None:
    found = A_PROFILE.at(40)
    assert found.blocks[0].forward_ms == pytest.approx(0.85)
    assert found.blocks[1].forward_ms == pytest.approx(2.5)
    assert (found.blocks[0].activation_bytes, found.blocks[0].saved_bytes) == (62, 31)
    assert found.blocks[0].parameter_bytes == 10
    assert A_PROFILE.at(64) is A_PROFILE
    alone = Profile(64, A_PROFILE.blocks, ((0, 1),)).at(32)
    assert alone.blocks[0].forward_ms == pytest.approx(0.5)


def test_noise_gives_no_negative_time() -> None:
    noisy = Profile(
        8, (BlockCost("a", 9.0, 0, 0, 0, 0),), (), 0.0, (BatchTimes(4, (1.0,), (0.0,)),)
    )
    assert noisy.at(1).blocks[0].forward_ms == pytest.approx(9 / 8)
    falling = Profile(
        8, (BlockCost("a", 1.0, 0, 0, 0, 0),), (), 0.0, (BatchTimes(4, (2.0,), (0.0,)),)
    )
    assert falling.at(1).blocks[0].forward_ms >= 0


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10Gbit", 1.25e9), ("1.5Gbit", 187.5e6), ("200Mbit", 25e6), ("12.5GB", 12.5e9),
        ("10 Gbit/s", 1.25e9), ("1GiB", 2**30), ("500kB", 5e5), ("9600bit", 1200),
    ],
)  # fmt: skip
def test_a_rate_is_read_with_its_unit(text: str, rate: float) -> None:
    assert parse_link(text).bytes_per_s == pytest.approx(rate)


@pytest.mark.parametrize(
    "text",
    ["", "10", "10gbit", "10Gb", "10GBit", "0Gbit", "-1Gbit", "1e3Gbit", "Gbit", "10 G bit"],
)
def test_a_rate_without_a_clear_unit_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--link: a rate above 0 with its unit \(found"):
        parse_link(text, "--link")

"""Names of images, as users of Determined, Apptainer and enroot write them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dethpc.containers.names import FOLDER, ORAS, REGISTRY, SIF, SQUASHFS, Image, parse

D = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "text, image",
    [
        ("ubuntu", Image(REGISTRY, "docker.io", "library/ubuntu", "latest")),
        ("determinedai/environments:cuda-12.1-pytorch-2.2-gpu-0.38.1",
         Image(REGISTRY, "docker.io", "determinedai/environments", "cuda-12.1-pytorch-2.2-gpu-0.38.1")),
        ("docker://alpine:3", Image(REGISTRY, "docker.io", "library/alpine", "3")),
        ("index.docker.io/library/alpine:3", Image(REGISTRY, "docker.io", "library/alpine", "3")),
        ("nvcr.io/nvidia/pytorch:24.01-py3", Image(REGISTRY, "nvcr.io", "nvidia/pytorch", "24.01-py3")),
        ("docker://nvcr.io#nvidia/pytorch:24.01-py3", Image(REGISTRY, "nvcr.io", "nvidia/pytorch", "24.01-py3")),
        (f"registry:5000/x@{D}", Image(REGISTRY, "registry:5000", "x", "", D)),
        (f"localhost/x:1@{D}", Image(REGISTRY, "localhost", "x", "1", D)),
        ("oras://ghcr.io/lab/tool:1", Image(ORAS, "ghcr.io", "lab/tool", "1")),
        ("/images/x.sif", Image(SIF, path="/images/x.sif")),
        ("~/x.sqsh", Image(SQUASHFS, path="~/x.sqsh")),
        ("file:///images/root", Image(FOLDER, path="/images/root")),
    ],
)  # fmt: skip
def test_what_a_name_means(text: str, image: Image) -> None:
    assert parse(text) == image


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "is no image"), ("a b", "is no image"), ("x\n", "is no image"), ("library://lab/x", "not taken from library://"),
        ("./x.sif", "begins with /"), ("x.sif", "begins with /"), ("X/y", "small letters"), ("x:", "is no tag"),
        ("x@sha256:12", "64 hexadecimal"), ("docker://", "is no name"), ("a//b", "is no name"), ("-h.x/y", "no address"),
        ("docker://--x#y", "no address"),
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused_with_what_is_allowed(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text)


_part = st.from_regex(r"[a-z0-9]+([._-][a-z0-9]+)?", fullmatch=True)
_hosts = st.one_of(
    st.sampled_from(["docker.io", "localhost", "[::1]:5000", "r:5000"]),
    st.from_regex(r"[a-z]+\.[a-z]+(:[0-9]{2,5})?", fullmatch=True),
)
_images = st.builds(
    lambda kind, host, parts, tag, digest: Image(
        kind, host, "/".join(parts), tag or ("" if digest else "latest"), digest
    ),
    st.sampled_from([REGISTRY, ORAS]),
    _hosts,
    st.lists(_part, min_size=2, max_size=4),
    st.one_of(st.just(""), st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)),
    st.one_of(st.just(""), st.just(D)),
)


@given(_images)
def test_a_name_in_full_is_read_as_what_it_was_made_of(image: Image) -> None:
    assert parse(image.name) == image


@given(st.one_of(st.text(), st.text(alphabet="ab/:@#.~-_[]0 \nsifdocker")))
@example("docker://registry#team/train:1")
@example("oras://registry#tool")
def test_any_text_is_an_image_or_refused_in_words(text: str) -> None:
    try:
        image = parse(text)
    except ValueError as error:
        assert str(error)
    else:
        assert parse(image.name) == image
        for part in (image.registry, image.repository, image.tag):
            assert not part.startswith("-") and ".." not in part.split("/")

"""Versions in plain order, and ranges that are nothing but that order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from autolaunch.capability.versions import is_early, parse_range, version_key

RELEASES = st.lists(st.integers(0, 30), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
POSTS = st.builds(
    lambda release, post: release if post is None else f"{release}.post{post}",
    RELEASES,
    st.none() | st.integers(0, 9),
)


@given(POSTS, POSTS)
def test_releases_and_posts_are_ordered_as_pep_440_orders_them(one: str, other: str) -> None:
    keys = version_key(one), version_key(other)
    assert keys[0] is not None and keys[1] is not None
    assert (keys[0] < keys[1]) == (Version(one) < Version(other))
    assert (keys[0] == keys[1]) == (Version(one) == Version(other))


@given(st.text(max_size=30))
def test_any_text_is_a_version_or_none(text: str) -> None:
    version_key(text)
    try:
        parse_range(text)
    except ValueError:
        return


@given(POSTS, st.sampled_from(["rc1", "a2", ".dev3", "b1.dev20261101+gabc", ".dev0+cu130"]))
def test_an_early_build_stands_for_its_release(version: str, early: str) -> None:
    release = version.partition(".post")[0]
    assert version_key(release + early) == version_key(release)
    assert is_early(release + early) and not is_early(version)


@pytest.mark.parametrize(
    ("text", "version", "holds"),
    [
        (">0.5.10", "0.5.10.post1", True),
        ("<=0.5.10", "0.5.10.post1", False),
        ("==0.5.10.*", "0.5.10.post1", True),
        ("!=0.5.10.*", "0.5.10.post1", False),
        ("<0.5.11", "0.5.11rc1", False),
        (">=0.5.23", "0.5.23.dev17+g0a1b2c", True),
        (">=0.5.9,<0.5.20", "0.5.20", False),
        (">=0.5.9,<0.5.20", "0.5.17", True),
        ("~=0.6.7", "0.6.15.post1", True),
        ("~=0.6.7", "0.7.2", False),
        ("~=0.6.7", "0.6.3", False),
        ("==2.9.1", "2.9.1+cu128", True),
        ("==2.9", "2.9.0", True),
        ("", "1", True),
    ],
)
def test_ranges(text: str, version: str, holds: bool) -> None:
    assert parse_range(text).holds(version) is holds


@pytest.mark.parametrize("version", ["", "main", "1.x", "v", "0.5.", "unknown", "0.5.23-dirty!"])
def test_what_is_no_version_is_in_no_known_range(version: str) -> None:
    assert version_key(version) is None
    assert parse_range(">=0.5.9").holds(version) is None


@pytest.mark.parametrize("text", ["0.5.9", "=>0.5.9", "=== 0.5.9", ">=", ">=x", ">=0.5.*", "~=1", "a>=1"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_range(text)

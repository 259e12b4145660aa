"""The arena's layout: blocks that meet share no byte, however many there are, and both ways to place them agree."""

import time
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from mlirc.lowering.memory import arena_layout
from mlirc.lowering.memory.arena_layout import meeting, meetings, place

BLOCKS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 20), st.integers(0, 20)).map(lambda b: (64 * b[0], b[1], b[1] + b[2])),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(BLOCKS)
def test_both_ways_agree_and_blocks_that_meet_share_no_byte(blocks):
    found = []
    for crowded in (10**9, 10**-9):
        with patch.object(arena_layout, "CROWDED", crowded):
            found.append(place(blocks))
    assert found[0] == found[1]
    offsets, total = found[0]
    assert total == max((o + b[0] for o, b in zip(offsets, blocks, strict=True)), default=0)
    pairs = [(i, j) for i, others in enumerate(meeting(blocks)) for j in others if i < j]
    assert len(pairs) == meetings(blocks)
    for i, j in pairs:
        apart = offsets[i] + blocks[i][0] <= offsets[j] or offsets[j] + blocks[j][0] <= offsets[i]
        assert apart or not blocks[i][0] or not blocks[j][0]


def test_thousands_of_blocks_that_are_all_alive():
    start = time.process_time()
    offsets, total = place([(64 * (k % 5 + 1), k, 3000) for k in range(3000)])
    assert len(set(offsets)) == 3000 and total == 64 * 9000
    assert time.process_time() - start < 10

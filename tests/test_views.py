def test_as_strided_is_a_view_by_steps() -> None:
    x = tg.arange(12.0)
    windows = x.as_strided((4, 3), (2, 1), 1)
    assert windows.tolist() == [[1, 2, 3], [3, 4, 5], [5, 6, 7], [7, 8, 9]]
    x[3] = 30
    assert windows[0, 2] == windows[1, 0] == 30
    part = x[2:8]
    assert part.storage_offset() == 2
    assert part.as_strided((2,), (3,)).tolist() == [2, 5]  # without an offset from where it begins
    assert part.as_strided((2,), (3,), 3).tolist() == [30, 6]
    turned = x.reshape(3, 4).t()
    assert turned.as_strided((3,), (1,)).tolist() == [0, 1, 2]  # in the order of memory
    leaf = tg.ones(5, requires_grad=True)
    leaf.as_strided((3, 3), (1, 1)).sum().backward()
    assert leaf.grad.tolist() == [1, 2, 3, 2, 1]


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "message"),
    [
        ((2, 2), (1,), 0, "2 sizes, but 1 strides"),
        ((2,), (-1,), 3, "not be negative"),
        ((3,), (3,), 0, "elements 0 to 6 are wanted of a tensor that has 6"),
        ((1,), (1,), 6, "elements 6 to 6"),
    ],
)
def test_as_strided_stays_within_the_tensor(shape, strides, offset, message) -> None:
    with pytest.raises(RuntimeError, match=message):
        tg.arange(6.0).as_strided(shape, strides, offset)


def test_as_strided_needs_memory_without_gaps() -> None:
    with pytest.raises(RuntimeError, match="has gaps"):
        tg.arange(6.0)[::2].as_strided((2,), (1,))

"""Numbers as sentences tell them."""

import pytest

from autoscaler.domain.figures import figure


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "0"), (0.48213, "0.4821"), (2654.3, "2654"), (9999.4, "9999"), (9999.6, "10,000"), (16072.2, "16,072"),
     (-28450.0, "-28,450"), (3.4e7, "34,000,000")],
)  # fmt: skip
def test_four_digits_and_never_a_power_of_ten(value: float, told: str) -> None:
    assert figure(value) == told

"""Skips everything here where there is no card that the kernels run on."""

from pathlib import Path

import pytest
import torch

from engine.triton_kernels.support import obstacle

HERE = Path(__file__).parent
CUDA = torch.device("cuda", 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = obstacle(CUDA, head_dim=128) if torch.cuda.is_available() else "needs an NVIDIA card"
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.gpu)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def device() -> torch.device:
    return CUDA

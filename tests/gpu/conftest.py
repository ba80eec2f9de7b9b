"""Skips everything here where there is no card that the kernels run on."""

import pytest
import torch

from engine.triton_kernels.support import obstacle

CUDA = torch.device("cuda", 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = obstacle(CUDA, head_dim=128) if torch.cuda.is_available() else "needs an NVIDIA card"
    for item in items:
        if item.path.parent.name == "gpu":
            item.add_marker(pytest.mark.gpu)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def device() -> torch.device:
    return CUDA

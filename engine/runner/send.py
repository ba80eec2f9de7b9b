"""Numbers of the host on their way to a device, without waiting for what the device still computes."""

import torch
from torch import Tensor


def send(numbers: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device. From ordinary memory the host would wait until all earlier work is done."""
    if device.type != "cuda":
        return numbers.to(device)
    return numbers.pin_memory().to(device, non_blocking=True)

"""The platform itself: which of SGLang's own parts serve where no kernel package is installed.

Checked with SGLang 0.5.14, 0.5.17, 0.5.20, 0.5.21 and 0.5.23.  What a version does not ask for is not
called: 0.5.23 picks its cache pool by itself and never reaches `get_mha_kv_pool_cls`.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform


class TorchCpuPlatform(CpuDeviceMixin, SRTPlatform):
    """A CPU seen as a device from outside, so that SGLang asks here and does not expect its CPU kernels."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"

    def get_device(self, index: int | None = None) -> str | torch.device:
        """The only device there is: its name for the argument parser, which gives no `index`, else itself."""
        device = torch.device("cpu")
        return device.type if index is None else device

    def get_dispatch_key_name(self) -> str:
        """Operators run `forward_native`."""
        return "native"

    def get_default_attention_backend(self) -> str:
        """The attention that needs neither Triton nor a kernel package."""
        return "torch_native"

    def get_mha_kv_pool_cls(self) -> type:
        """The cache pool of the GPU path: plain tensors, at home on any device."""
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

        return MHATokenToKVPool

    def get_paged_allocator_cls(self) -> type:
        """An allocator without Triton kernels, which SGLang has for pages of one token only."""
        return single_token_allocator()

    def is_pin_memory_available(self, device: Any = None) -> bool:
        """There is no device to copy to, so nothing is gained by pinning."""
        return False

    def get_torch_profiler_activity_str(self) -> str:
        """What `/start_profile` calls this device."""
        return "CPU"

    def get_torch_profiler_activity(self) -> torch.profiler.ProfilerActivity:
        """What PyTorch's profiler calls it."""
        return torch.profiler.ProfilerActivity.CPU


def single_token_allocator() -> type:
    """SGLang's allocator of single tokens, with the arguments of a paged one.

    Made on request: the module it comes from must not be imported while SGLang still looks for its platform.
    """
    from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator

    class SingleTokenAllocator(TokenToKVPoolAllocator):
        """Refuses any page size but 1, with which `torch_native` reads the cache."""

        def __init__(
            self, size: int, page_size: int, dtype: torch.dtype, device: str, kvcache: Any, need_sort: bool
        ) -> None:
            if page_size != 1:
                raise ValueError(
                    f"page_size {page_size} is not supported on the torch_cpu platform, only 1 is"
                )
            super().__init__(size, dtype=dtype, device=device, kvcache=kvcache, need_sort=need_sort)

    return SingleTokenAllocator

"""All checks, in the order in which their findings are told."""

from __future__ import annotations

from ktdesk_wizard.doctor import device_checks, measurement_checks, memory_checks, processor_checks
from ktdesk_wizard.doctor.diagnosis import Check

CHECKS: tuple[Check, ...] = (
    processor_checks.unused_tiles,
    processor_checks.narrow_vectors,
    processor_checks.slow_governor,
    processor_checks.time_quota,
    processor_checks.two_kinds_of_cores,
    processor_checks.forced_isa,
    memory_checks.empty_channels,
    memory_checks.slow_modules,
    memory_checks.unequal_modules,
    memory_checks.low_bandwidth,
    memory_checks.limited,
    memory_checks.taken,
    memory_checks.swapping,
    memory_checks.huge_pages,
    memory_checks.balancing,
    memory_checks.clustering,
    device_checks.old_driver,
    device_checks.unasked_cards,
    device_checks.hidden_cards,
    device_checks.narrow_links,
    device_checks.disk,
    device_checks.small_wsl,
    measurement_checks.calibration,
)

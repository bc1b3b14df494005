"""Run programs that were written for PopTorch, unmodified, in one process or in several instances."""

from __future__ import annotations

from porting.run.instances import InstancePlan, is_simulated, run_instances, simulated_environment, vendor_environment

__all__ = ["InstancePlan", "is_simulated", "run_instances", "simulated_environment", "vendor_environment"]

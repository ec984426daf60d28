"""Hypothesis profiles: `fast` (default) and `thorough` (`pytest --hypothesis-profile thorough`)."""

from hypothesis import HealthCheck, settings

_EXAMPLES = {"fast": 10, "thorough": 100}


def load_profiles():
    """Registers both profiles, and loads the fast one."""
    for name, count in _EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=count,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile("fast")


def is_thorough():
    """Returns whether the thorough profile is loaded. pytest loads it before it imports test modules."""
    return settings.default.max_examples == _EXAMPLES["thorough"]


def get_max_examples(count):
    """Returns settings with `count` examples in the thorough profile, a tenth of that in the fast one."""
    return settings(max_examples=max(count * settings.default.max_examples // _EXAMPLES["thorough"], 1))

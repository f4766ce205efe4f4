"""The metrics of several processes as those of one server.

Counters, histograms and most gauges add up. Some gauges are the same fact seen by several processes, or the
worst of several; those about a process keep its name in the label ``process``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from interlingua.translator.admin.metrics import Family, Sample

_LARGEST = frozenset(
    {
        "interlingua_build_info",
        "interlingua_draining",
        "interlingua_mirror_output_max_absolute_error",
        "interlingua_mirror_output_max_relative_error",
        "interlingua_model_ready",
        "interlingua_models_known",
        "interlingua_models_ready",
        "interlingua_shared_memory_bytes",
        "interlingua_shared_memory_regions",
        "interlingua_upstream_server_ejected",
        "nv_cpu_memory_total_bytes",
        "nv_cpu_memory_used_bytes",
        "nv_cpu_utilization",
    }
)
_SMALLEST = frozenset(
    {"interlingua_online", "interlingua_peers_settled", "interlingua_upstream_server_in_use"}
)
_OF_A_PROCESS = "process_"


def merged(families: Mapping[str, Iterable[Family]]) -> Iterator[Family]:
    """The ``families`` of processes, by the name of the process, in their order."""
    kept: dict[str, Family] = {}
    values: dict[str, dict[tuple[object, ...], Sample]] = {}
    for process, found in families.items():
        for family in found:
            kept.setdefault(family.name, family)
            samples = values.setdefault(family.name, {})
            merge = _merge_of(family.name)
            for sample in family.samples:
                if family.name.startswith(_OF_A_PROCESS):
                    sample = sample._replace(labels={**sample.labels, "process": process})
                key = (sample.suffix, *sample.labels.items())
                known = samples.get(key)
                samples[key] = (
                    sample if known is None else sample._replace(value=merge(known.value, sample.value))
                )
    for name, family in kept.items():
        yield Family(name, family.kind, family.help, list(values[name].values()))


def _merge_of(name: str) -> Callable[[float, float], float]:
    if name in _LARGEST:
        return max
    return min if name in _SMALLEST else lambda one, other: one + other

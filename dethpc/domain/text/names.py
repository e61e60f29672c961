"""Names for experiments to which nobody gave one: lists can be read aloud, and clients that send a name back send one."""

from __future__ import annotations

from random import Random

_HOW = (
    "amber brisk calm candid clever copper coral crisp curious daring eager early fabled gentle glad golden hardy honest humble "
    "jolly keen kind lively loyal lucid lunar mellow merry mild misty nimble noble patient plucky polite proud quick quiet rapid "
    "rosy rustic sandy scarlet serene silent silver simple sincere snowy solar steady sturdy subtle sunny swift tidy upbeat "
    "velvet vivid warm wise witty zesty"
).split()
_WHAT = (
    "alder badger basil beacon birch bison brook canyon cedar comet condor coyote cricket delta dolphin elm ember falcon fern "
    "finch fjord gecko glacier harbor hazel heron ibex island jackal juniper kestrel lagoon lark lemur lichen linnet lynx maple "
    "marmot meadow meteor minnow newt oak orchid osprey otter pebble pine plover prairie quail quartz raven reef robin sparrow "
    "spruce summit swallow tern thistle tundra willow wren"
).split()


def made_up(source: str) -> str:
    """``Experiment (brisk-otter)``. The same ``source`` gives the same name."""
    draw = Random(source)
    return f"Experiment ({draw.choice(_HOW)}-{draw.choice(_WHAT)})"

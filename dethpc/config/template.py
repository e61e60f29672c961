"""Templates: parts of configurations, which lie under those of experiments and tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from pydantic import ValidationError

from dethpc.config.dialects import translate
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.loading import merged_source
from dethpc.config.problems import UNIONS, kinds_of_section, problems_of
from dethpc.config.sections.hyperparameters import out_of_range, read_space
from dethpc.config.sections.section import Section
from dethpc.config.source import Source, dump, read
from dethpc.config.task import ELSEWHERE, TaskConfig
from dethpc.config.unsupported import OLDER, refused
from dethpc.errors import ConfigError, Path, Problem, path_of


class Template(NamedTuple):
    name: str
    config: Mapping[str, Any]


def check(template: Template) -> None:
    """Raises ConfigError with every mistake of an experiment's configuration, except that nothing is required. A template is also
    valid where it is one for tasks."""
    file = f"template {template.name}"
    source, problems = read(dump(dict(template.config)), file)
    if not problems and not any(_mistakes_of(source, TaskConfig, ELSEWHERE)):
        return
    translation = translate(source.data)
    source.data = translation.data
    problems += translation.problems
    paths = {problem.path for problem in translation.problems}
    problems += [problem for problem in _mistakes(source) if problem.path not in paths]
    if problems:
        for problem in problems:
            problem.file, problem.line = file, None
        raise ConfigError(problems)


def _mistakes(source: Source) -> Iterator[Problem]:
    space = source.data.get("hyperparameters")
    if space is not None:
        values, problems = read_space(space, ("hyperparameters",), grid=False)
        yield from problems
        yield from out_of_range(values, ("hyperparameters",))
    source = Source({name: value for name, value in source.data.items() if name != "hyperparameters"}, source.places)
    yield from refused(source)
    for path, tag in UNIONS.items():
        section = source.get(path)
        if isinstance(section, dict) and section.get(tag) is None:
            yield from _mistakes_without_kind(source, path, tag)
            source.data.pop(str(path[0]))
    yield from _mistakes_of(source, ExperimentConfig, OLDER)


def _mistakes_without_kind(source: Source, path: Path, tag: str) -> list[Problem]:
    """Those of a section that leaves its kind to the experiment: they are mistakes in each kind."""
    name = str(path[0])
    sections = [
        Source({name: {**source.data[name], tag: kind}}) for kind in kinds_of_section(ExperimentConfig, path, tag)
    ]
    mistakes = ([*_mistakes_of(section, ExperimentConfig, OLDER)] for section in sections)
    return min(mistakes, key=lambda kind: (len(kind), [not problem.hint for problem in kind]))


def _mistakes_of(source: Source, model: type[Section], elsewhere: Mapping[str, str]) -> Iterator[Problem]:
    """Of what stands there. What is missing stands in the configuration that lies over it; an item of a list is whole."""
    try:
        model.model_validate(source.data)
    except ValidationError as error:
        for problem in problems_of(error, model, source, elsewhere=elsewhere):
            in_list = any(isinstance(part, int) for part in problem.path)
            if in_list or source.get(problem.path) is not None:
                yield problem


def of_experiments(template: Template) -> tuple[Template, list[str]]:
    """The template without ``resources.slots``, which is for tasks alone, and a sentence for the user where that is left out."""
    resources = template.config.get("resources")
    if not isinstance(resources, Mapping) or resources.get("slots") is None:
        return template, []
    others = {name: value for name, value in resources.items() if name != "slots"}
    note = f"resources.slots of template {template.name!r} is for tasks: trials have resources.slots_per_trial"
    return template._replace(config={**template.config, "resources": others}), [note]


@contextmanager
def laid_over(text: str, template: Template | None, *, file: str = "config") -> Iterator[str]:
    """The text laid over the template, as new YAML; without one, the text itself. A ConfigError that is raised meanwhile names the
    places where the values were written."""
    if template is None:
        yield text
        return
    source = merged_source(text, template.config, file=file, under_name=f"template {template.name}")
    try:
        yield dump(source.data)
    except ConfigError as error:
        for problem in error.problems:
            problem.file, problem.line = source.place(path_of(problem.field))
        raise

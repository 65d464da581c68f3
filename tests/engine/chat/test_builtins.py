"""Everything that jinja2 offers works in the process that can open no file any more."""

from __future__ import annotations

from collections.abc import Iterator

import jinja2.defaults
import pytest

from ktdesk_engine.chat.source import TemplateSource
from ktdesk_engine.chat.template import ChatTemplate

FILTERS = {
    "abs": "1 | abs",
    "attr": "'a' | attr('b')",
    "batch": "'abc' | batch(2) | list",
    "dictsort": "{'a': 1} | dictsort",
    "filesizeformat": "1000 | filesizeformat",
    "format": "'%s' | format(1)",
    "groupby": "[{'a': 1}] | groupby('a')",
    "items": "{'a': 1} | items | list",
    "map": "'abc' | map('upper') | list",
    "reject": "'abc' | reject('upper') | list",
    "rejectattr": "[{'a': 1}] | rejectattr('a') | list",
    "replace": "'a' | replace('a', 'b')",
    "round": "1.5 | round",
    "select": "'abc' | select('upper') | list",
    "selectattr": "[{'a': 1}] | selectattr('a') | list",
    "slice": "'abc' | slice(2) | list",
    "striptags": "'<b>&amp;</b>' | striptags",
    "sum": "[1, 2] | sum",
    "urlize": "'see https://example.org' | urlize",
    "wordwrap": "'a long line of words' | wordwrap(5)",
    "xmlattr": "{'a': 1} | xmlattr",
}
"""Those that can do nothing with 'a'."""
COMPARISONS = ("divisibleby", "sameas", "eq", "equalto", "ne", "lt", "lessthan", "le", "gt", "greaterthan", "ge")
CALLS = {"range": "range(2) | list", "cycler": "cycler(1).next()"}


def expressions() -> Iterator[str]:
    for name in jinja2.defaults.DEFAULT_FILTERS:
        yield FILTERS.get(name, f"'a' | {name}")
    for name in jinja2.defaults.DEFAULT_TESTS:
        if name == "in":
            yield "1 is in([1])"
        elif name.isidentifier():
            yield f"1 is {name}(1)" if name in COMPARISONS else f"1 is {name}"
        else:  # such as <
            yield f"[1] | select('{name}', 1) | list"
    for name in jinja2.defaults.DEFAULT_NAMESPACE:
        yield CALLS.get(name, f"{name}()")


EXPRESSIONS = list(enumerate(expressions()))


@pytest.fixture(scope="module")
def template() -> Iterator[ChatTemplate]:
    """It puts an expression's value into each prompt."""
    choices = "".join(f"{{% if messages[0].content == '{i}' %}}{{{{ {e} }}}}{{% endif %}}" for i, e in EXPRESSIONS)
    with ChatTemplate(TemplateSource({"default": choices})) as template:
        yield template


@pytest.mark.parametrize(("index", "expression"), EXPRESSIONS)
def test_it_works_where_no_file_can_be_opened(template: ChatTemplate, index: int, expression: str) -> None:
    template.render([{"role": "user", "content": str(index)}])

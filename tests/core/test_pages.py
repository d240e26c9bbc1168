"""Templates: nothing of Python itself gets onto a page."""

import pytest
from markupsafe import Markup

from buckets.pages.page import templates


def test_a_method_in_place_of_an_entry_is_an_error():
    template = templates().from_string("{{ rule.keys }}")
    with pytest.raises(TypeError, match="a page shows <built-in method keys"):
        template.render(rule={"keys": "2 of 3"})


def test_texts_numbers_and_markup_are_shown():
    template = templates().from_string("{{ text }} {{ number }} {{ markup }}")
    assert template.render(text="<a>", number=3, markup=Markup("<b>")) == "&lt;a&gt; 3 <b>"

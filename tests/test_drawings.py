"""The drawings of the docs are well-formed, always the same, and show all that they are to show."""

from xml.etree import ElementTree

from docs.drawings.floors import draw_floors, draw_uses, read_places, read_uses
from docs.drawings.svg import Svg
from tests.floors import modules

SVG = "{http://www.w3.org/2000/svg}"


def small():
    svg = Svg(100, 50.125, "two <boxes>")
    svg.rectangle(0, 1 / 3, 10, 10, fill="#fff", hint="a & b")
    svg.text(5, 5, "<|endoftext|>", anchor="middle", monospace=True)
    svg.line(0, 0, 10, 0, dashed=True)
    return str(svg)


def texts(drawing):
    return [element.text for element in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


def hints(drawing):
    return [element.text for element in ElementTree.fromstring(drawing).iterfind(f"{SVG}rect/{SVG}title")]


def test_an_svg_is_xml_that_holds_what_was_drawn():
    root = ElementTree.fromstring(small())
    assert root.attrib["viewBox"] == "0 0 100 50.12"
    assert root.find(f"{SVG}title").text == "two <boxes>"
    assert root.find(f"{SVG}rect").attrib["y"] == "0.33"
    assert root.find(f"{SVG}rect/{SVG}title").text == "a & b"
    assert root.find(f"{SVG}text").text == "<|endoftext|>"
    assert root.find(f"{SVG}line").attrib["stroke-dasharray"] == "4 3"


def test_an_svg_is_the_same_each_time():
    assert small() == small()
    assert "\n" not in small()


def test_all_places_of_the_code_are_drawn():
    drawn = texts(draw_floors())
    assert {name.split(".", maxsplit=1)[0] for name in modules()} <= set(drawn)
    assert sum(place.files for place in read_places()) == len(modules())


def test_the_matrix_has_all_imports_of_upper_floors():
    drawn = texts(draw_uses())
    assert sum(int(number) for number in drawn if number.isdigit()) == sum(
        count for (user, _), count in read_uses().items() if not user.startswith("floor")
    )
    assert f"models imports text: {read_uses()['models', 'text']}" in hints(draw_uses())

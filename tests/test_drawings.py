"""The drawings of the docs are well-formed, always the same, and show all that they are to show."""

from xml.etree import ElementTree

from docs.drawings.svg import Svg

SVG = "{http://www.w3.org/2000/svg}"


def small():
    svg = Svg(100, 50.125, "two <boxes>")
    svg.rectangle(0, 1 / 3, 10, 10, fill="#fff", hint="a & b")
    svg.text(5, 5, "<|endoftext|>", anchor="middle", monospace=True)
    svg.line(0, 0, 10, 0, dashed=True)
    return str(svg)


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

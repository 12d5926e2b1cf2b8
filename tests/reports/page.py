"""Read an HTML page as a tree, with the standard library's parser alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}
SHAPES = {"use", "path", "circle", "rect", "line", "polyline"}


@dataclass
class Node:
    tag: str
    attributes: dict[str, str]
    children: "list[Node | str]" = field(default_factory=list)

    def every(self, tag: str = "", cls: str = "") -> "Iterator[Node]":
        """Yield this node's descendants of a tag and a class, in order."""
        for child in self.children:
            if isinstance(child, Node):
                classes = child.attributes.get("class", "").split()
                if (not tag or child.tag == tag) and (not cls or cls in classes):
                    yield child
                yield from child.every(tag, cls)

    def one(self, id_: str) -> "Node":
        """Return the descendant with an id."""
        found = [node for node in self.every() if node.attributes.get("id") == id_]
        assert len(found) == 1, f"{len(found)} elements with id {id_}"
        return found[0]

    @property
    def text(self) -> str:
        """Return all text below this node, white space collapsed."""
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            elif child.tag not in {"style", "script"}:
                yield from child._texts()
                yield " " if child.tag not in {"b", "mark", "span", "a"} else ""

    @property
    def rows(self) -> list[list[str]]:
        """Return the text of a table's body, cell by cell."""
        body = next(self.every("tbody"))
        return [
            [cell.text for cell in row.every() if cell.tag in {"td", "th"}]
            for row in body.every("tr")
        ]


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES, f"<{tag}/> closes itself"
        self.open[-1].children.append(Node(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(html: str) -> Node:
    """Return the root of a page; a tag that is not closed where it must be is an error."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    assert len(builder.open) == 1, f"<{builder.open[-1].tag}> is never closed"
    return builder.root

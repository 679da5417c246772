"""The text of a page is what the page shows."""

from copilot_runtime.extensions.knowledge.ingestion import read_document
from copilot_runtime.extensions.knowledge.rdf.page import read_page
from tests.in_one_test import in_one_test


def read(body: str) -> str:
    page = f"<!doctype html><title>x</title><body>{body}"
    return "\n".join(chunk.text for chunk in read_document(page.encode(), "x.html").chunks)


@in_one_test(
    ("body", "text"),
    [
        ('5<span style="display:none">7</span>.58', "5.58"),
        ("<p STYLE='color: red; DISPLAY : None !important'>no</p>x", "x"),
        ("<p style='display:none; display:block'>x</p>", "x"),
        ("<p style='/* display:none */'>x</p>", "x"),
        ("<p style='visibility:\n hidden'>no</p>x", "x"),
        ("<p hidden>no</p><p hidden=until-found>x</p>", "x"),
        ("<p aria-hidden=TRUE>no</p><p aria-hidden=false>x</p>", "x"),
        ("<dialog>no</dialog><dialog open>x</dialog>", "x"),
        ("<template><p>no</p></template><input type=hidden value=no>x", "x"),
        (
            "<p>a<input type=Password value=no><input hidden value=no><input type=radio value=no>x",
            "a \u2610 x",
        ),
        ("<p popover>no</p><p style='content-visibility: hidden'>no</p>x", "x"),
        ("<p style='d\\69 splay:n\\6fne'>no</p><p style='vi\\sibility:hidde\\n'>no</p>x", "x"),
        ("<p style='display:none; display:\\000062lock; \\110000'>x</p>", "x"),
        ("<table><tr><td>a<td hidden>no<td>b</table>", "a | b"),
        ("<pre>a<b hidden>no</b>\n b</pre>", "a\n b"),
        ("<p style='color:#FFF'>no</p><font color=white>no</font>x", "x"),
        ("<p style='color:rgb(255, 255,255)'>no</p><p style='color:rgba(255 255 255 / 1)'>no", ""),
        ("<p style='color:rgb(0,0,0)'>x</p>", "x"),
        ("<style>p{}</style><p style='color:white'>x</p>", "x"),
        ("<div style='background: #000'><i style='color:black'>no</i><b class=y>x</b></div>", "x"),
        ("a<video>no</video><audio>no</audio><canvas>no</canvas><meter>no</meter>", "a"),
        ("a<datalist><option value=no>no</datalist><iframe>no</iframe>", "a"),
        ("<p style='font-size:0px'>no</p><p style='font-size:0'><b>x</b></p>", "x"),
    ],
)
def test_a_hidden_text_of_a_page_is_left_out(body: str, text: str) -> None:
    assert read(body) == text


def test_a_page_that_is_hidden_has_no_text() -> None:
    assert read_document(b"<html style=display:none><body>no", "x.html").chunks == []


@in_one_test(
    ("page", "warning"),
    [
        ("<html><body><p>x</p><ul><li>y", "The page has no end: it may be cut off."),
        (
            "<style>.no {display: none}</style><p class=no>x</p><p style='opacity:0'>y</p>",
            "Texts that the style of the page may hide are read: 2.",
        ),
        (
            "<p style='text-indent: -9999px'>x</p><p style=height:0;overflow:hidden>y</p>",
            "Texts that the style of the page may hide are read: 2.",
        ),
        (
            "<p style='clip-path:inset(100%)'>x</p><p style='color: transparent'>y</p>",
            "Texts that the style of the page may hide are read: 2.",
        ),
        (
            "<style>.no {display: none}</style><p>x</p><input class=no value=y>",
            "Texts that the style of the page may hide are read: 1.",
        ),
        (
            "<style>.no {display: none}</style><p class=no>x<b class=no>\n</b></p><p>y</p>",
            "Texts that the style of the page may hide are read: 1.",
        ),
        (
            "<title>t</title><main>x</main><details>y</details><iframe src=a></iframe>",
            "Frames, which show other pages, are not read: 1.",
        ),
        (
            "<p>x</p><svg><text>a</text></svg><p>y</p>",
            "Texts in drawings (SVG) are not read: 1.",
        ),
    ],
)
def test_a_doubt_about_a_page_is_a_warning(page: str, warning: str) -> None:
    document = read_document(page.encode(), "x.html")
    assert ([chunk.text for chunk in document.chunks], document.warnings) == (["x\ny"], [warning])


@in_one_test(
    ("inside", "values"),
    [
        ("<b itemprop=p> 5<i style='display:none'>7</i>.58</b>", ['"5.58"']),
        ("<i hidden itemprop=p>no</i><b itemprop=p>x</b>", ['"x"']),
        ("<p hidden><a itemprop=p href=no>no</a><meta itemprop=p content=x></p>", ['"x"']),
        ("<p hidden itemprop=p itemscope itemtype=https://schema.org/No></p>", []),
        ("<template><p itemscope itemtype=https://schema.org/No itemid=#no></template>", []),
        ("<i hidden property=p>no</i><b property=p>x</b>", ['"x"']),
        (
            "<p aria-hidden=true><a property=p href=no>no</a><meta property=p content=x></p>",
            ['"x"'],
        ),
        ("<div hidden><p typeof=No resource=#no><meta property=p content=no></div>", []),
    ],
)
def test_a_hidden_annotation_is_left_out(inside: str, values: list[str]) -> None:
    page = f"""<div itemscope itemtype="https://schema.org/Thing"
        itemid="#x" vocab="https://schema.org/" resource="#x" typeof="Thing">{inside}</div>"""
    (statements,) = read_page(page.encode(), "https://e/").items.values()
    assert [str(value) for _, _, value in statements[1:]] == values


@in_one_test(
    ("body", "text"),
    [
        (
            "<pre><code>def f():\n    return 1\n\n\tx\n</code></pre>",
            "def f():\n    return 1\n\n\tx",
        ),
        ("<pre>a<br>  b</pre>", "a\n  b"),
        ("<textarea>a\n  b</textarea><p style='white-space: pre'>c\n  d", "a\n  b\nc\n  d"),
        ("<pre><div>a</div><div>  b</div></pre>", "a\n  b"),
        ("10<sup>5</sup> <s>old</s> 5<sup>th</sup>", "10^5 ~~old~~ 5th"),
        ("<table><tr><td>10<sup>5</sup><td><del>old</del></table>", "10^5 | ~~old~~"),
        ("<a-b><template shadowrootmode=open><p>x</template></a-b>", "x"),
        ("va&shy;cation in Mu\u0308nchen", "vacation in M\u00fcnchen"),
        ("<ol start=3><li>c<li><p>d</p><li value=7>e</ol>x", "3. c\n4. d\n7. e\nx"),
        ("<ol reversed><li>a<li>b</ol>", "2. a\n1. b"),
        ("<ol type=a><li>x<li>y</ol><ol type=I start=4><li>z</ol>", "a. x\nb. y\nIV. z"),
        ("<ul><li>a<ol><li>b</ol></ul>", "a\n1. b"),
        ("<p>See <img alt='the map'>.</p><img alt=''>", "See the map ."),
        ("<p>Name:<input value=Ann><input type=Submit value=Go>x", "Name: Ann Go x"),
        ("<table><tr><td>Name<td><input type=text value=Ann></table>", "Name | Ann"),
        ("<select><option>a<option>b</select><button>Go</button>", "a\nb\nGo"),
        ("<select><option>a<option selected>b</select>", "a\n\u2611 b"),
        ("<p><input type=radio checked>Yes<input type=Radio>No", "\u2611 Yes \u2610 No"),
        ("<table><tr><td>ok<td><input type=checkbox checked></table>", "ok | \u2611"),
        ("<table><tr><td>a<td><select><option>x<option selected>y</table>", "a | x \u2611 y"),
        ("<table><tr><th rowspan=2>a<th colspan=2>b<tr><td>1<td>2</table>", "a | b | b\na | 1 | 2"),
        ("<table><tr><td><p>a</p><td><ul><li>x<li>y</ul></table>", "a | x y"),
        ("<table><tr><td><h1>H</h1>a<td><p>b</p></table>", "a\nb"),
        ("<legend>a</legend><label>b</label>c<center>d</center>e", "a\nb c\nd\ne"),
        ("<button>a</button><button>b</button><menu>c</menu>d", "a b\nc\nd"),
        ("<table><tr><td>a<td><button>b</button><label>c</label></table>", "a | b c"),
        ("<select><optgroup label=a><option label=b>no<option>c</select>", "a\nb\nc"),
        ("<math><mn>3</mn><mfrac><mn>1</mn><mn>2</mn></mfrac></math>.", "3 1/2."),
        ("<math><msup><mi>x</mi> <mn>3</mn></msup><mn>2</mn></math>", "x^3 2"),
        ("<math><msup><mi>x</mi><mrow><mi>n</mi><mo>+</mo><mn>1</mn></mrow></msup>", "x^(n+1)"),
        ("<math><msqrt><mn>16</mn></msqrt><mroot><mn>8</mn><mn>3</mn></mroot>", "√16 8^(1/3)"),
        ("<math><msqrt><mi>a</mi><mo>+</mo><msub><mi>b</mi><mn>1</mn></msub></msqrt>", "√(a+b_1)"),
        ("<math><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr></math>", "1 2"),
        ("<math><mi>E</mi><annotation encoding='application/x-tex'>no</annotation></math>", "E"),
    ],
)
def test_a_page_keeps_its_lines_lists_tables_and_pictures(body: str, text: str) -> None:
    assert read(body) == text


def test_the_lines_of_a_long_program_stay_lines() -> None:
    line = "if ready:\n        start(engine)"
    assert read(f"<pre>{(line + chr(10)) * 300}</pre>").count(line) > 290


def test_cells_that_span_all_rows_are_repeated_within_limits() -> None:
    wide = "<td rowspan=60000 colspan=1000>label" * 1000
    assert len(read(f"<table><tr>{wide}{'<tr><td>x' * 5000}</table>")) < 3_000_000

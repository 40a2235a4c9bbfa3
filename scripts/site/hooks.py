"""Prepares pages for the site: they are written to be read in the repository, too."""

import pathlib
import posixpath
import re

CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.M | re.S)
LINK = re.compile(r"(\]\()(\.\./[^)\s#]*)(#[^)\s]*)?(\))")
IMAGE = re.compile(r"(!\[[^\]]*\]\()([^)\s]*)\.png\)")
MARK = re.compile(r"^<!-- .*? -->\n", re.M)
ENTRY = re.compile(r"^### (.+)\n\n(.+)$", re.M)
# Everything in which a word is not linked: code, headings, links, tables' rules and HTML.
FIXED = re.compile(r"(^```.*?^```$|`[^`\n]*`|^#+ [^\n]*$|!?\[(?:`[^`]*`|[^\]`])*\]\([^)]*\)|<[^>]*>)", re.M | re.S)
# Words that mean something else as often as what the glossary says.
ORDINARY = {"attempt", "context", "due", "expire", "fair", "key", "kind", "lost", "pause", "reference", "schedule", "source", "store", "story", "term", "token"}


def glossary(config):
    """Returns the words of the glossary with their patterns and explanations."""
    text = (pathlib.Path(config.docs_dir) / "glossary.md").read_text(encoding="utf-8")
    words = []
    for name, explanation in ENTRY.findall(text):
        if name.lower() not in ORDINARY:
            stem = re.sub("y$", "(?:y|ie)", re.escape(name.lower()))
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", re.sub(r" See \[.*", "", explanation)).replace('"', "'")
            anchor = name.lower().replace(" ", "-")
            words.append((re.compile(rf"\b{stem}(?:s|es|d|ed)?\b", re.I), anchor, plain))
    return words


def explain(markdown, page, config):
    """Links the first use of each word of the glossary to its explanation."""
    to = posixpath.relpath("glossary.md", posixpath.dirname(page.file.src_uri) or ".")
    parts = FIXED.split(markdown)
    for pattern, anchor, explanation in glossary(config):
        for n in range(0, len(parts), 2):
            linked, count = pattern.subn(lambda m: f'[{m[0]}]({to}#{anchor} "{explanation}"){{ .term }}', parts[n], count=1)
            if count:
                parts[n : n + 1] = FIXED.split(linked)
                break
    return "".join(parts)


def in_both_schemes(markdown, page, config):
    """Adds to each image NAME.png beside which NAME-dark.png lies the latter, for dark mode."""

    def both(m):
        dark = pathlib.Path(config.docs_dir, posixpath.dirname(page.file.src_uri), f"{m[2]}-dark.png")
        return f"{m[1]}{m[2]}.png#only-light){m[1]}{m[2]}-dark.png#only-dark)" if dark.exists() else m[0]

    return IMAGE.sub(both, markdown)


def on_page_markdown(markdown, page, config, **_):
    """Turns links to files outside of docs/ into links to the repository, removes the marks by
    which tests run the code of a page, shows dark images in dark mode, and explains words of the
    glossary."""

    def outward(m):
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), m[2]))
        if target.startswith("docs/"):
            return m[0]
        return f"{m[1]}{config.repo_url}/blob/main/{target}{m[3] or ''}{m[4]}"

    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    # Links stand in the even parts, code in the odd ones.
    parts = CODE.split(MARK.sub("", markdown))
    markdown = "".join(part if n % 2 else in_both_schemes(LINK.sub(outward, part), page, config) for n, part in enumerate(parts))
    if page.file.src_uri == "glossary.md" or page.file.src_uri.startswith(("decisions/", "project/")):
        return markdown
    return explain(markdown, page, config)

"""Prepares pages for the site: they are written to be read in the repository, too."""

import posixpath
import re

CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.M | re.S)
LINK = re.compile(r"(\]\()(\.\./[^)\s#]*)(#[^)\s]*)?(\))")
MARK = re.compile(r"^<!-- .*? -->\n", re.M)


def on_page_markdown(markdown, page, config, **_):
    """Turns links to files outside of docs/ into links to the repository, and removes the
    marks by which tests run the code of a page."""

    def outward(m):
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), m[2]))
        if target.startswith("docs/"):
            return m[0]
        return f"{m[1]}{config.repo_url}/blob/main/{target}{m[3] or ''}{m[4]}"

    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    # Links stand in the even parts, code in the odd ones.
    parts = CODE.split(MARK.sub("", markdown))
    return "".join(part if n % 2 else LINK.sub(outward, part) for n, part in enumerate(parts))

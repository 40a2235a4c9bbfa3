"""Checks a built version of the site, and writes the list of versions beside it.

finish.py FOLDER VERSION
"""

import json
import pathlib
import re
import sys

# Attributes and rules by which a browser fetches something while a page is read.
FETCHES = [
    re.compile(r'<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc="?(https?:)?//([^"/\s>]+)', re.I),
    re.compile(r'<link\b(?=[^>]*\brel="?(?:stylesheet|preconnect|preload|icon|dns-prefetch)\b)[^>]*\bhref="?(https?:)?//([^"/\s>]+)', re.I),
]
# Parts of the theme whose scripts fetch something: figures of the repository, and Mermaid.
FETCHES += [re.compile(r'<()[^>]*\b(data-md-component="?source|class="?mermaid)\b', re.I)]
FETCHES_OF_STYLES = [re.compile(r'(?:url\(|@import\s+)["\']?(https?:)?//([^"\'/\s)]+)', re.I)]


def foreign(folder):
    """Returns what pages and styles of a folder would fetch from other hosts."""
    found = []
    for path in sorted(folder.rglob("*")):
        patterns = {".html": FETCHES, ".css": FETCHES_OF_STYLES}.get(path.suffix, [])
        text = path.read_text(encoding="utf-8") if patterns else ""
        for pattern in patterns:
            found += [f"{path} fetches from {m[2]}" for m in pattern.finditer(text)]
    return found


def order(version):
    """Sorts releases, the newest first, behind the version of the development."""
    numbers = tuple(int(n) for n in re.findall(r"\d+", version))
    return (bool(numbers), tuple(-n for n in numbers))


def main(top, version):
    found = foreign(top / version)
    if found:
        sys.exit("pages must not fetch from other hosts:\n" + "\n".join(found))
    versions = sorted((p.parent.name for p in top.glob("*/index.html")), key=order)
    entries = [{"version": v, "title": v, "aliases": []} for v in versions]
    (top / "versions.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    latest = next((v for v in versions if order(v)[0]), versions[0])
    (top / "index.html").write_text(
        f'<!doctype html>\n<meta charset="utf-8">\n<title>Posthaste</title>\n'
        f'<meta http-equiv="refresh" content="0; url={latest}/">\n<a href="{latest}/">Posthaste {latest}</a>\n',
        encoding="utf-8")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
